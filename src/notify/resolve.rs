//! What a name stands for now. The addresses that are judged are those that are called: the name is not asked again.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::thread;

use tokio::sync::oneshot;

use super::Sender;
use crate::domain::notice::{Failed, HttpTarget};

/// The addresses of a target that may be called, in the order in which they are tried.
pub(super) async fn resolve(
    target: &HttpTarget,
    sender: &Sender,
) -> Result<Vec<SocketAddr>, Failed> {
    let host = &target.host;
    let found = match host.parse::<IpAddr>() {
        Ok(address) => vec![SocketAddr::new(address, target.port)],
        // The resolver also understands what is not a name: octal, decimal and shortened addresses.
        Err(_) => {
            let (name, port) = (host.clone(), target.port);
            off_thread(move || Ok((name.as_str(), port).to_socket_addrs()?.collect()))
                .await
                .map_err(|error: io::Error| {
                    Failed::again(format!("the address of {host} cannot be found: {error}"))
                })?
        }
    };
    let may_be_called = |address: &SocketAddr| sender.config.allowed.admits(host, address.ip());
    let (may, must_not): (Vec<_>, Vec<_>) = found.into_iter().partition(may_be_called);
    match (may.is_empty(), must_not.first()) {
        (false, _) => Ok(may),
        (true, None) => Err(Failed::again(format!("{host} has no address"))),
        (true, Some(address)) => Err(Failed::again(format!(
            "{host} is {}, which is not public: a worker calls it only with --notify-allow",
            address.ip()
        ))),
    }
}

/// Does what blocks on a thread of its own. It is no thread of a pool, since the end of a pool waits for all of them, and
/// a resolver may take its time.
pub(super) async fn off_thread<T: Send + 'static>(
    body: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let (send, answer) = oneshot::channel();
    thread::Builder::new().name("leasehold-notify".into()).spawn(move || {
        // Whoever asked may have no more time.
        let _ = send.send(body());
    })?;
    answer.await.unwrap_or_else(|_| Err(io::Error::other("it was given up")))
}
