//! Stands between a store and its PostgreSQL server, and cuts the line at a COMMIT.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::thread;

/// Where the next COMMIT is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// Nowhere.
    No = 0,
    /// The server never hears of it.
    Before = 1,
    /// The server has done it, and its answer does not arrive.
    After = 2,
    /// As `After`; and nobody gets through any more.
    AfterForGood = 3,
    /// Nobody gets through.
    Closed = 4,
}

/// A proxy for as long as the process lives.
pub struct Proxy {
    pub url: String,
    cut: Arc<AtomicU8>,
}

impl Proxy {
    /// A way to the server of `url`.
    pub fn to(url: &str) -> Proxy {
        let (scheme, rest) = url.split_once("://").unwrap();
        let (authority, path) = rest.split_once('/').unwrap();
        let (user, server) = match authority.rsplit_once('@') {
            Some((user, server)) => (format!("{user}@"), server.to_owned()),
            None => (String::new(), authority.to_owned()),
        };
        let server = if server.contains(':') { server } else { format!("{server}:5432") };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let here = listener.local_addr().unwrap();
        let cut = Arc::new(AtomicU8::new(Cut::No as u8));
        let shared = Arc::clone(&cut);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if shared.load(Ordering::SeqCst) == Cut::Closed as u8 {
                    continue;
                }
                let (server, cut) = (TcpStream::connect(&server).unwrap(), Arc::clone(&shared));
                let (to, from) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                let mute = Arc::new(AtomicBool::new(false));
                let muted = Arc::clone(&mute);
                thread::spawn(move || forward(from, to, &cut, &mute));
                thread::spawn(move || backward(server, client, &muted));
            }
        });
        Proxy { url: format!("{scheme}://{user}{here}/{path}"), cut }
    }

    pub fn cut(&self, cut: Cut) {
        self.cut.store(cut as u8, Ordering::SeqCst);
    }

    /// Whether the line was cut as ordered.
    pub fn has_cut(&self) -> bool {
        [Cut::No as u8, Cut::Closed as u8].contains(&self.cut.load(Ordering::SeqCst))
    }
}

fn forward(mut client: TcpStream, mut server: TcpStream, cut: &AtomicU8, mute: &AtomicBool) {
    let mut bytes = [0; 65536];
    while let Ok(count @ 1..) = client.read(&mut bytes) {
        let chunk = &bytes[..count];
        // A client sends a COMMIT at the end of a message and waits for the answer.
        let order = match chunk.ends_with(b"COMMIT\0") {
            true => cut.load(Ordering::SeqCst),
            false => Cut::No as u8,
        };
        if [Cut::Before as u8, Cut::After as u8, Cut::AfterForGood as u8].contains(&order) {
            let next = if order == Cut::AfterForGood as u8 { Cut::Closed } else { Cut::No };
            cut.store(next as u8, Ordering::SeqCst);
            if order == Cut::Before as u8 {
                break;
            }
            mute.store(true, Ordering::SeqCst);
        }
        if server.write_all(chunk).is_err() {
            break;
        }
    }
    // Where the server's answer is awaited the other thread ends the connection.
    if !mute.load(Ordering::SeqCst) {
        let _ = client.shutdown(Shutdown::Both);
        let _ = server.shutdown(Shutdown::Both);
    }
}

fn backward(mut server: TcpStream, mut client: TcpStream, mute: &AtomicBool) {
    let mut bytes = [0; 65536];
    while let Ok(count @ 1..) = server.read(&mut bytes) {
        if mute.load(Ordering::SeqCst) || client.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = client.shutdown(Shutdown::Both);
    let _ = server.shutdown(Shutdown::Both);
}
