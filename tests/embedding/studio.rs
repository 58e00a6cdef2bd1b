//! The example as a process, and plain HTTP to it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// A running example; killed when a test fails.
pub(crate) struct Studio {
    child: Child,
    address: String,
}

impl Studio {
    /// Starts it on a port of its own.
    pub(crate) fn start(store: &str, allowed: &str) -> Studio {
        let mut child = Command::new(example())
            .args(["0", store, allowed])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim_end().strip_prefix("listening on http://").expect(&line).to_owned();
        assert!(address.starts_with("127.0.0.1:"), "{address}");
        Studio { child, address }
    }

    pub(crate) fn get(&self, path: &str) -> (u16, Value) {
        self.request("GET", path, "Host: localhost\r\n", "")
    }

    pub(crate) fn post(&self, body: &str) -> (u16, Value) {
        let headers = "Host: localhost\r\nContent-Type: application/json\r\n";
        self.request("POST", "/tasks", headers, body)
    }

    /// One request on a connection of its own. An answer that is no JSON comes back as text.
    pub(crate) fn request(
        &self,
        method: &str,
        path: &str,
        headers: &str,
        body: &str,
    ) -> (u16, Value) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\n{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let status = answer.split(' ').nth(1).expect(&answer).parse().unwrap();
        let text = answer.split_once("\r\n\r\n").expect(&answer).1;
        (status, serde_json::from_str(text).unwrap_or_else(|_| text.into()))
    }

    /// Ctrl-c.
    pub(crate) fn interrupt(&self) {
        let pid = Pid::from_raw(self.child.id().try_into().unwrap()).unwrap();
        kill_process(pid, Signal::INT).unwrap();
    }

    /// Waits until it takes no more requests.
    pub(crate) fn until_deaf(&self) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while TcpStream::connect(&self.address).is_ok() {
            assert!(Instant::now() < deadline, "still listening a minute after ctrl-c");
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// After ctrl-c.
    pub(crate) fn exit_code(mut self) -> Option<i32> {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < deadline, "still running a minute after ctrl-c");
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Studio {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `cargo test` builds the examples beside the tests: `debug/examples/studio` for `debug/deps/embedding-...`.
fn example() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let example = test.parent().unwrap().with_file_name("examples").join("studio");
    assert!(
        example.is_file(),
        "{} is not there: run `cargo test`, or `cargo build --example studio` before this test alone",
        example.display()
    );
    example
}
