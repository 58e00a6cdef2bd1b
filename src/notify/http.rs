//! Posts a notice. One request over one connection: nothing is pooled, no proxy is asked, no redirect is followed.

use std::net::SocketAddr;
use std::time::Duration;

use http::header::{CONNECTION, CONTENT_TYPE, HOST, RETRY_AFTER, USER_AGENT};
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::Sender;
use super::resolve::resolve;
use crate::db::ops::NoticeToSend;
use crate::domain::notice::{Failed, HttpTarget, judge};

/// How long one address may take to answer a connection, before the next one is tried.
const CONNECT: Duration = Duration::from_secs(3);
const AGENT: &str = concat!("leasehold/", env!("CARGO_PKG_VERSION"));

type Body = Full<Bytes>;

/// Posts a notice, once.
///
/// # Errors
/// Whatever is not a status of success.
pub(super) async fn post(
    target: &HttpTarget,
    notice: &NoticeToSend,
    sender: &Sender,
    now: f64,
) -> Result<(), Failed> {
    let request = request(target, notice, sender, now)
        .map_err(|error| Failed::again(format!("no request can be made of it: {error}")))?;
    let stream = connect(&resolve(target, sender).await?).await?;
    let response = match target.is_secure {
        true => exchange(sender.tls.connect(target, stream).await?, request).await,
        false => exchange(stream, request).await,
    };
    let response = response.map_err(|error| Failed::again(format!("no answer: {error}")))?;
    let retry_after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
    judge(response.status().as_u16(), retry_after, now)
}

fn request(
    target: &HttpTarget,
    notice: &NoticeToSend,
    sender: &Sender,
    now: f64,
) -> http::Result<Request<Body>> {
    // The cast saturates, and no clock says such a time.
    let timestamp = now as i64;
    let mut request = Request::post(target.path.as_str())
        .header(HOST, &target.authority)
        .header(USER_AGENT, AGENT)
        .header(CONTENT_TYPE, "application/json")
        .header(CONNECTION, "close")
        .header("leasehold-event", &notice.id)
        .header("leasehold-attempt", notice.attempt)
        .header("webhook-id", &notice.id)
        .header("webhook-timestamp", timestamp);
    if let Some(key) = &sender.config.key {
        let signature = key.sign(&notice.id, timestamp, notice.payload.as_bytes());
        request = request.header("webhook-signature", signature);
    }
    request.body(Full::from(notice.payload.clone()))
}

/// To the first address that answers.
async fn connect(addresses: &[SocketAddr]) -> Result<TcpStream, Failed> {
    let mut failed = Failed::again("there is no address");
    for address in addresses {
        failed = match timeout(CONNECT, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => Failed::again(format!("no connection to {address}: {error}")),
            Err(_) => Failed::again(format!("no connection to {address} within {CONNECT:?}")),
        };
    }
    Err(failed)
}

async fn exchange<S>(stream: S, request: Request<Body>) -> hyper::Result<Response<Incoming>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let answer = sender.send_request(request);
    tokio::pin!(answer, connection);
    tokio::select! {
        biased;
        response = &mut answer => response,
        // It was closed; the answer may have come before.
        _ = &mut connection => answer.await,
    }
}
