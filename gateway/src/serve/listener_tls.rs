//! TLS of the listener for clients: certificates by name, and client authorities, read anew when their files change.
//!
//! Invariant: the files in use were read together and fit each other. Files that cannot be used change nothing; the
//! ones before stay in use.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use rustls::client::verify_server_name;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{
    ClientHello, ParsedCertificate, ResolvesServerCert, VerifierBuilderError, WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig};
use tokio::task::spawn_blocking;
use tokio_rustls::TlsAcceptor;

use mooring_secrets::file::{self, SecretFileError};
use mooring_settings::{CertificateFiles, ListenerTlsSettings};
use mooring_upstream::with_causes;

/// Longest private key file.
const KEY_FILE_BYTES_MAX: u64 = 64 * 1024;
/// How often the files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// The application protocols; HTTP/2 only if it is enabled.
const HTTP2: &[u8] = b"h2";
const HTTP1: &[u8] = b"http/1.1";

/// Why the certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum ListenerTlsError {
    /// A file of certificates cannot be read.
    #[error("cannot read certificates from {}", path.display())]
    Certificates {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        error: pem::Error,
    },
    /// A file has no certificate.
    #[error("{} has no certificate in PEM", .0.display())]
    NoCertificate(PathBuf),
    /// A private key cannot be read.
    #[error(transparent)]
    Key(#[from] SecretFileError),
    /// A file has no private key.
    #[error("{} has no private key in PEM", .0.display())]
    NoKey(PathBuf),
    /// A key does not belong to its certificate, or TLS cannot use it.
    #[error("the key in {} does not fit the certificate in {}", key.display(), certificate.display())]
    Mismatch {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// Why.
        #[source]
        error: rustls::Error,
    },
    /// The certificates of client authorities cannot be used.
    #[error("cannot verify client certificates with {}", path.display())]
    Authorities {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        error: VerifierBuilderError,
    },
    /// TLS refuses the configuration.
    #[error("cannot configure TLS")]
    Config(#[source] rustls::Error),
}

/// The TLS of the listener. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct ListenerTls(Arc<ReloadedConfig>);

#[derive(Debug)]
struct ReloadedConfig {
    settings: ListenerTlsSettings,
    has_http2: bool,
    /// When the files that were read at start had been changed.
    seen: FileVersions,
    current: RwLock<Arc<ServerConfig>>,
}

impl ListenerTls {
    /// Reads the files of the settings.
    ///
    /// # Errors
    /// See [`ListenerTlsError`].
    pub(super) fn open(
        settings: &ListenerTlsSettings,
        has_http2: bool,
    ) -> Result<Self, ListenerTlsError> {
        // Before they are read: a change in between is noticed, too.
        let seen = versions(settings);
        Ok(Self(Arc::new(ReloadedConfig {
            current: RwLock::new(read_config(settings, has_http2)?),
            seen,
            settings: settings.clone(),
            has_http2,
        })))
    }

    /// Accepts a connection with the files that were read last.
    pub(super) fn acceptor(&self) -> TlsAcceptor {
        let current = self
            .0
            .current
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&current).into()
    }

    /// Reads the files again whenever one has changed. Does not return.
    pub(super) async fn follow_files(self) {
        let mut seen = self.0.seen.clone();
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let this = Arc::clone(&self.0);
            let reloaded = spawn_blocking(move || {
                let versions = versions(&this.settings);
                (versions != seen).then(|| this.reload());
                versions
            });
            seen = match reloaded.await {
                Ok(versions) => versions,
                // The runtime is ending.
                Err(_) => return,
            };
        }
    }
}

impl ReloadedConfig {
    fn reload(&self) {
        match read_config(&self.settings, self.has_http2) {
            Ok(config) => {
                *self.current.write().unwrap_or_else(PoisonError::into_inner) = config;
                tracing::info!("certificates of the listener read again");
            }
            Err(error) => {
                let cause = with_causes(&error);
                tracing::error!(%cause, "certificates of the listener have changed and cannot be used; those before stay in use");
            }
        }
    }
}

/// When each file or its permissions were changed last, in seconds and nanoseconds (`st_ctim` of stat(2)); none for one
/// that cannot be looked at.
type FileVersions = Vec<Option<(i64, i64)>>;

fn versions(settings: &ListenerTlsSettings) -> FileVersions {
    let of_certificates =
        (settings.certificates.iter()).flat_map(|files| [&files.certificate_file, &files.key_file]);
    let all = of_certificates.chain(&settings.client_ca_file);
    all.map(|path| {
        let about = fs::metadata(path).ok()?;
        Some((about.ctime(), about.ctime_nsec()))
    })
    .collect()
}

/// Reads and checks every file of the settings.
///
/// # Errors
/// See [`ListenerTlsError`].
pub(super) fn read_config(
    settings: &ListenerTlsSettings,
    has_http2: bool,
) -> Result<Arc<ServerConfig>, ListenerTlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let keys: Result<Vec<_>, _> = (settings.certificates.iter())
        .map(|files| certified_key(files, &provider).map(Arc::new))
        .collect();
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(ListenerTlsError::Config)?;
    let builder = match &settings.client_ca_file {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(path)? {
                roots.add(certificate).map_err(ListenerTlsError::Config)?;
            }
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(verifier.map_err(|error| {
                ListenerTlsError::Authorities {
                    path: path.clone(),
                    error,
                }
            })?)
        }
    };
    let mut config = builder.with_cert_resolver(Arc::new(ByName(keys?)));
    config.alpn_protocols = match has_http2 {
        true => vec![HTTP2.to_vec(), HTTP1.to_vec()],
        false => vec![HTTP1.to_vec()],
    };
    Ok(Arc::new(config))
}

fn certified_key(
    files: &CertificateFiles,
    provider: &rustls::crypto::CryptoProvider,
) -> Result<CertifiedKey, ListenerTlsError> {
    let chain = certificates(&files.certificate_file)?;
    let text = file::read(&files.key_file, KEY_FILE_BYTES_MAX)?;
    let key = PrivateKeyDer::from_pem_slice(&text)
        .map_err(|_| ListenerTlsError::NoKey(files.key_file.clone()))?;
    CertifiedKey::from_der(chain, key, provider).map_err(|error| ListenerTlsError::Mismatch {
        certificate: files.certificate_file.clone(),
        key: files.key_file.clone(),
        error,
    })
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, ListenerTlsError> {
    let failed = |error| ListenerTlsError::Certificates {
        path: path.to_owned(),
        error,
    };
    let read = CertificateDer::pem_file_iter(path).map_err(failed)?;
    let certificates: Vec<_> = read.collect::<Result<_, _>>().map_err(failed)?;
    match certificates.is_empty() {
        true => Err(ListenerTlsError::NoCertificate(path.to_owned())),
        false => Ok(certificates),
    }
}

/// Chooses the first certificate that is for the name the client asks for (RFC 6066, section 3), else the first one.
#[derive(Debug)]
struct ByName(Vec<Arc<CertifiedKey>>);

impl ResolvesServerCert for ByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = hello
            .server_name()
            .and_then(|name| ServerName::try_from(name).ok());
        let named = name.and_then(|name| {
            let mut keys = self.0.iter();
            keys.find(|key| {
                let certificate = key.end_entity_cert().ok();
                let certificate = certificate.and_then(|der| ParsedCertificate::try_from(der).ok());
                certificate
                    .is_some_and(|certificate| verify_server_name(&certificate, &name).is_ok())
            })
        });
        named.or(self.0.first()).cloned()
    }
}
