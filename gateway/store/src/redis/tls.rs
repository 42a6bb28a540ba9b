//! TLS to Redis (`rediss://`).
//!
//! Invariant: the server proves its name by a certificate of an authority that the settings name, or that this system
//! trusts if they name none.

use std::error::Error as _;
use std::io;
use std::sync::Arc;

use mooring_secrets::certificates::{certificates, certified_key};
use mooring_secrets::file::FileError;
use mooring_settings::RedisTlsFiles;
use rustls::pki_types::ServerName;
use rustls::sign::SingleCertAndKey;
use rustls::{AlertDescription, ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Verifies the server at the other side of `stream`.
pub(super) async fn handshake(
    host: &str,
    stream: TcpStream,
    files: &RedisTlsFiles,
) -> io::Result<TlsStream<TcpStream>> {
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    TlsConnector::from(Arc::new(config(files)?))
        .connect(name, stream)
        .await
}

/// Reads the certificates at each connection, so that replaced ones are known without a restart.
fn config(files: &RedisTlsFiles) -> io::Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    let found = match &files.ca_file {
        Some(path) => certificates(path).map_err(io::Error::other)?,
        None => rustls_native_certs::load_native_certs().certs,
    };
    if let (0, _) = roots.add_parsable_certificates(found) {
        let missing = match &files.ca_file {
            Some(path) => format!("{} has no usable root certificate", path.display()),
            None => "no usable root certificate".to_owned(),
        };
        return Err(io::Error::other(FileError::new(missing)));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let client = files.client.as_ref().map(|client| {
        certified_key(&client.certificate_file, &client.key_file, &provider)
            .map_err(io::Error::other)
    });
    let versions = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots);
    Ok(match client.transpose()? {
        Some(client) => {
            versions.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(client)))
        }
        None => versions.with_no_client_auth(),
    })
}

/// Reads the certificates for TLS to Redis, and connects to nothing.
///
/// # Errors
/// What is wrong with them.
pub fn check_certificates(files: &RedisTlsFiles) -> Result<(), String> {
    let read = config(files).map(drop);
    read.map_err(|error| problem(&error).unwrap_or_else(|| error.to_string()))
}

/// What is wrong with certificates, if that is why the connection failed.
pub(super) fn problem(error: &io::Error) -> Option<String> {
    let cause = error.get_ref()?;
    if let Some(shared) = cause.downcast_ref::<Arc<io::Error>>() {
        return problem(shared);
    }
    if let Some(file) = cause.downcast_ref::<FileError>() {
        let cause = file.source().map(|cause| format!(": {cause}"));
        return Some(format!("{file}{}", cause.unwrap_or_default()));
    }
    match cause.downcast_ref()? {
        rustls::Error::InvalidCertificate(problem) => Some(format!(
            "its certificate is not accepted: {problem}; store.tls_ca_file names the file of its authority"
        )),
        rustls::Error::AlertReceived(alert) => of_client(*alert),
        _ => None,
    }
}

/// What the server says of the gateway's certificate (RFC 8446, section 6.2).
fn of_client(alert: AlertDescription) -> Option<String> {
    match alert {
        AlertDescription::CertificateRequired => Some(
            "it asks for a certificate of the gateway: set store.tls_cert_file and store.tls_key_file"
                .to_owned(),
        ),
        // TLS 1.2 has no alert of its own for a missing certificate.
        AlertDescription::HandshakeFailure => Some(
            "it refuses the handshake; if it asks for a certificate of the gateway, set store.tls_cert_file and \
             store.tls_key_file"
                .to_owned(),
        ),
        AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateRevoked
        | AlertDescription::CertificateExpired
        | AlertDescription::CertificateUnknown
        | AlertDescription::UnknownCA
        | AlertDescription::AccessDenied
        | AlertDescription::DecryptError => Some(format!(
            "it does not accept the certificate of store.tls_cert_file: {alert:?}"
        )),
        _ => None,
    }
}
