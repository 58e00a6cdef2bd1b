//! A way to the PostgreSQL server that a test can cut, or let fall silent as a half-open connection is.

#![allow(dead_code, reason = "each test program uses its own part of this")]

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

#[derive(Default)]
struct State {
    silent: AtomicBool,
    /// Raised by one at each cut; connections that are older end.
    cuts: AtomicU32,
    closed: AtomicBool,
}

pub(crate) struct Proxy {
    /// The address of the store, by way of this proxy.
    pub(crate) url: String,
    state: Arc<State>,
}

impl Proxy {
    pub(crate) fn to(url: &str) -> Proxy {
        let (start, server, rest) = split(url);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("{start}{}{rest}", listener.local_addr().unwrap());
        let state = Arc::new(State::default());
        let (shared, server) = (state.clone(), server.to_owned());
        thread::spawn(move || accept(&listener, &server, &shared));
        Proxy { url, state }
    }

    /// Nothing passes from now on, and no connection ends; new ones are not answered either.
    pub(crate) fn fall_silent(&self) {
        self.state.silent.store(true, Ordering::SeqCst);
    }

    pub(crate) fn speak_again(&self) {
        self.state.silent.store(false, Ordering::SeqCst);
    }

    /// Every connection there is ends.
    pub(crate) fn cut(&self) {
        self.state.cuts.fetch_add(1, Ordering::SeqCst);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.state.closed.store(true, Ordering::SeqCst);
        self.cut();
    }
}

/// An address as what comes before its host and port, those two, and the rest.
fn split(url: &str) -> (&str, &str, &str) {
    let host = url.find('@').unwrap_or_else(|| url.find("//").unwrap() + 1) + 1;
    let end = host + url[host..].find(['/', '?']).unwrap();
    (&url[..host], &url[host..end], &url[end..])
}

fn accept(listener: &TcpListener, server: &str, state: &Arc<State>) {
    for client in listener.incoming() {
        let client = client.unwrap();
        if state.closed.load(Ordering::SeqCst) {
            return;
        }
        let server =
            if server.contains(':') { server.to_owned() } else { format!("{server}:5432") };
        let server = TcpStream::connect(server).unwrap();
        let born = state.cuts.load(Ordering::SeqCst);
        for (from, to) in [(&client, &server), (&server, &client)] {
            let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
            let state = state.clone();
            thread::spawn(move || carry(from, to, &state, born));
        }
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, state: &State, born: u32) {
    from.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
    let mut bytes = [0; 16 * 1024];
    while state.cuts.load(Ordering::SeqCst) == born {
        if state.silent.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(5));
            continue;
        }
        match from.read(&mut bytes) {
            Ok(0) => break,
            Ok(count) => {
                // What was read when silence fell stays here until it is over.
                while state.silent.load(Ordering::SeqCst)
                    && state.cuts.load(Ordering::SeqCst) == born
                {
                    thread::sleep(Duration::from_millis(5));
                }
                if to.write_all(&bytes[..count]).is_err() {
                    break;
                }
            }
            // A process that was stopped meanwhile is told so where it waits for so long and no longer.
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                ) => {}
            Err(_) => break,
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}
