//! A receiver of notices: a server that answers as a test says, and remembers what it was sent.

#![allow(dead_code, reason = "each test program uses its own part of this")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use serde_json::Value;
use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned};

/// What it was sent in one request.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) path: String,
    /// By their names in lower case.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

/// What it answers to request number N, the first being 0: the whole head, or nothing and it keeps the connection open.
type Answers = dyn Fn(usize) -> Option<String> + Send + Sync;

pub(crate) struct Receiver {
    pub(crate) port: u16,
    requests: Arc<Mutex<Vec<Request>>>,
    ends: Arc<AtomicBool>,
}

/// An answer with this status and no body.
pub(crate) fn status(status: u16) -> Option<String> {
    Some(format!("HTTP/1.1 {status} X\r\ncontent-length: 0\r\n\r\n"))
}

impl Receiver {
    /// One that answers each request with 204.
    pub(crate) fn start() -> Receiver {
        Receiver::answering(|_| status(204))
    }

    pub(crate) fn answering(
        answer: impl Fn(usize) -> Option<String> + Send + Sync + 'static,
    ) -> Receiver {
        Receiver::on(TcpListener::bind("127.0.0.1:0").unwrap(), answer)
    }

    /// One that speaks TLS.
    pub(crate) fn secured(config: ServerConfig) -> Receiver {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        Receiver::open(listener, Some(Arc::new(config)), |_| status(204))
    }

    pub(crate) fn on(
        listener: TcpListener,
        answer: impl Fn(usize) -> Option<String> + Send + Sync + 'static,
    ) -> Receiver {
        Receiver::open(listener, None, answer)
    }

    fn open(
        listener: TcpListener,
        tls: Option<Arc<ServerConfig>>,
        answer: impl Fn(usize) -> Option<String> + Send + Sync + 'static,
    ) -> Receiver {
        let port = listener.local_addr().unwrap().port();
        let (requests, ends) = (Arc::<Mutex<Vec<Request>>>::default(), Arc::default());
        let receiver = Receiver { port, requests: Arc::clone(&requests), ends: Arc::clone(&ends) };
        let answer: Arc<Answers> = Arc::new(answer);
        thread::spawn(move || {
            for stream in listener.incoming() {
                if ends.load(Ordering::SeqCst) {
                    return;
                }
                let (stream, tls) = (stream.unwrap(), tls.clone());
                let (requests, answer) = (Arc::clone(&requests), Arc::clone(&answer));
                thread::spawn(move || match tls {
                    None => serve(stream, &requests, &*answer),
                    Some(config) => {
                        let session = ServerConnection::new(config).unwrap();
                        serve(StreamOwned::new(session, stream), &requests, &*answer);
                    }
                });
            }
        });
        receiver
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

fn serve(mut stream: impl Read + Write, requests: &Mutex<Vec<Request>>, answer: &Answers) {
    let Some(request) = read(&mut stream) else { return };
    let number = {
        let mut requests = requests.lock().unwrap_or_else(PoisonError::into_inner);
        requests.push(request);
        requests.len() - 1
    };
    match answer(number) {
        Some(head) => drop(stream.write_all(head.as_bytes()).and_then(|()| stream.flush())),
        // Until the sender has had enough.
        None => drop(stream.read(&mut [0])),
    }
}

/// A request, unless the connection ends before.
fn read(stream: &mut impl Read) -> Option<Request> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let path = line.split(' ').nth(1)?.to_owned();
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.insert(name.to_lowercase(), value.to_owned());
    }
    let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Request { path, headers, body })
}
