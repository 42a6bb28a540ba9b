//! TLS to Redis (`rediss://`).
//!
//! Invariant: the server proves its name by a certificate that this system trusts.

use std::io;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Verifies the server at the other side of `stream`.
pub(super) async fn handshake(host: &str, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    TlsConnector::from(Arc::new(config()?))
        .connect(name, stream)
        .await
}

/// Reads the certificates at each connection, so that replaced ones are known without a restart.
fn config() -> io::Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    if let (0, _) = roots.add_parsable_certificates(found.certs) {
        let missing = "no usable root certificate";
        return Err(io::Error::other(missing));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?;
    Ok(versions.with_root_certificates(roots).with_no_client_auth())
}
