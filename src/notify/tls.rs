//! TLS, with the authorities that the system trusts.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::resolve::off_thread;
use crate::domain::notice::{Failed, HttpTarget};

/// The authorities, read when they are first needed.
#[derive(Debug, Default)]
pub(super) struct Tls(Arc<Mutex<Option<Arc<ClientConfig>>>>);

impl Tls {
    /// Speaks TLS over `stream` with a server that can prove to be the target.
    pub(super) async fn connect(
        &self,
        target: &HttpTarget,
        stream: TcpStream,
    ) -> Result<TlsStream<TcpStream>, Failed> {
        let failed = |error: &dyn std::fmt::Display| {
            Failed::again(format!("no TLS with {}: {error}", target.host))
        };
        let config = self.config().await.map_err(|error| failed(&error))?;
        let name = ServerName::try_from(target.host.clone()).map_err(|error| failed(&error))?;
        TlsConnector::from(config).connect(name, stream).await.map_err(|error| failed(&error))
    }

    async fn config(&self) -> io::Result<Arc<ClientConfig>> {
        let kept = Arc::clone(&self.0);
        let there = kept.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(config) = there {
            return Ok(config);
        }
        off_thread(move || {
            let config = Arc::new(read()?);
            *kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&config));
            Ok(config)
        })
        .await
    }
}

fn read() -> io::Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    // Some may be unreadable among many that are not.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err(io::Error::other(
            "this machine trusts no authority: install ca-certificates, or name a file in SSL_CERT_FILE",
        ));
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}
