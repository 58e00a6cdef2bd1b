//! Child processes: this test program again, in a part of its own.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};

use leasehold::db::Mode;

use crate::disk;
use crate::kit::{open_url, task};
use crate::requests;

const PART: &str = "LEASEHOLD_TEST_PART";
const URL: &str = "LEASEHOLD_TEST_STORE";
/// What a child's own lines begin with; the test harness prints others.
const SAYS: &str = "child: ";

/// Not a test: what a child does. Without a part it is nothing.
#[test]
fn part() {
    let Ok(part) = std::env::var(PART) else { return };
    let url = std::env::var(URL).unwrap();
    match part.as_str() {
        "open" => drop(open_url(&url, Mode::Write).unwrap()),
        "submit" => submit_for_ever(&url),
        "ask" => requests::asks(&url),
        "full disk" => disk::fills_up(&url),
        "read-only disk" => disk::turns_read_only(&url),
        "not the owner" => disk::is_not_the_owner(&url),
        other => panic!("no part {other}"),
    }
}

fn submit_for_ever(url: &str) {
    let mut queue = leasehold::Queue::open(url, Default::default()).unwrap();
    loop {
        say(&queue.submit_task(&task()).unwrap());
    }
}

/// One line for the parent, which has it even if this process is killed right after.
pub fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("{SAYS}{line}\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

/// The command for a child in `part`; `before` comes first, such as another program that starts it.
pub fn command(before: &[&str], part: &str, url: &str) -> Command {
    let this = std::env::current_exe().unwrap();
    let mut words: Vec<&std::ffi::OsStr> = before.iter().map(std::ffi::OsStr::new).collect();
    words.push(this.as_os_str());
    let mut command = Command::new(words[0]);
    command.args(&words[1..]);
    command.args(["--exact", "children::part", "--nocapture", "--test-threads=1"]);
    command.env(PART, part).env(URL, url).env("RUST_BACKTRACE", "0");
    command
}

/// A child that runs beside the test, and the lines it says.
pub struct Beside {
    child: Child,
    lines: Receiver<String>,
}

impl Beside {
    pub fn start(part: &str, url: &str) -> Beside {
        let mut command = command(&[], part, url);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let (send, lines) = channel();
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                // The harness leaves its own line open before the first.
                if let Some((_, said)) = line.split_once(SAYS) {
                    let _ = send.send(said.to_owned());
                }
            }
        });
        Beside { child, lines }
    }

    /// The next line; nothing once the child has ended.
    pub fn line(&self) -> Option<String> {
        self.lines.recv().ok()
    }

    /// Kills it, and gives the lines that it had said and nobody has taken.
    pub fn kill(mut self) -> Vec<String> {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.lines.iter().collect()
    }

    pub fn wait(mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }
}
