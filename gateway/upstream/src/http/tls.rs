//! What connections with TLS trust.

use std::io;
use std::sync::Arc;

/// Why the client could not be created.
#[derive(Debug, thiserror::Error)]
#[error("cannot read this system's root certificates, which the https:// instances need")]
pub struct ClientError(#[source] io::Error);

/// The TLS configuration. Root certificates are read only if TLS is needed.
pub fn tls_config(needs_tls: bool) -> Result<rustls::ClientConfig, ClientError> {
    let mut roots = rustls::RootCertStore::empty();
    if needs_tls {
        let found = rustls_native_certs::load_native_certs();
        let (added, _) = roots.add_parsable_certificates(found.certs);
        if added == 0 {
            let missing = io::Error::new(io::ErrorKind::NotFound, "no usable root certificate");
            return Err(ClientError(missing));
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| ClientError(io::Error::other(error)))?;
    Ok(versions.with_root_certificates(roots).with_no_client_auth())
}
