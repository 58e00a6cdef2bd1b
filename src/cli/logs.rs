//! What the program says while it works: on standard error, as text or JSON.

use std::io::{self, Write};

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use super::failure::Failure;
use super::harmless::{harmless, harmless_json};

#[derive(Debug, clap::Args)]
pub(super) struct LogOptions {
    /// What is logged: error, warn, info, debug or trace; or a filter such as leasehold=debug
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    log: String,
    /// How it is logged
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    log_format: Format,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    /// One line of text for each event
    Text,
    /// One JSON object for each event
    Json,
}

impl LogOptions {
    /// From now on events are logged.
    pub(super) fn start(&self) -> Result<(), Failure> {
        let filter = EnvFilter::try_new(&self.log).map_err(|error| {
            Failure::WrongWord(format!("--log {:?} is no level and no filter: {error}", self.log))
        })?;
        let logs = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false);
        match self.log_format {
            Format::Text => logs.with_target(false).with_writer(Inert(harmless)).init(),
            Format::Json => logs.json().with_writer(Inert(harmless_json)).init(),
        }
        Ok(())
    }
}

/// Writes to standard error with every control character escaped by the function: whatever a task is called or says,
/// an event stays one line, and a terminal stays as it was.
#[derive(Debug, Clone, Copy)]
struct Inert(fn(&str) -> String);

impl<'a> MakeWriter<'a> for Inert {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        Line { event: Vec::new(), escaped: self.0 }
    }
}

/// One event, written when it is whole.
struct Line {
    event: Vec<u8>,
    escaped: fn(&str) -> String,
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.event.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let text = String::from_utf8_lossy(&self.event);
        let line = (self.escaped)(text.trim_end_matches('\n')) + "\n";
        // Nobody may be reading any more. One write, so that the lines of several programs stay whole.
        let _ = io::stderr().lock().write_all(line.as_bytes());
    }
}
