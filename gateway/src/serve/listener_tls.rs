//! TLS of the listener for clients: certificates by name, and client authorities, reloaded when their files change.
//!
//! Invariant: the files in use were read together and fit each other. Files that cannot be used change nothing; the
//! ones before stay in use.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::client::verify_server_name;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateRevocationListDer, ServerName, TrustAnchor};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{
    ClientHello, ParsedCertificate, ResolvesServerCert, VerifierBuilderError, WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use mooring_secrets::certificates::{certificates, certified_key, revocation_lists};
use mooring_secrets::file::FileError;
use mooring_secrets::watched_files::{Reread, WatchedFiles};
use mooring_settings::ListenerTlsSettings;
use mooring_upstream::with_causes;

/// How often the files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// The application protocols; HTTP/2 only if it is enabled.
const HTTP2: &[u8] = b"h2";
const HTTP1: &[u8] = b"http/1.1";

/// The TLS of the listener. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct ListenerTls(Arc<WatchedFiles<VerifiedConfig>>);

/// A configuration, and what it was made from where clients are verified.
#[derive(Debug)]
pub(super) struct VerifiedConfig {
    server: Arc<ServerConfig>,
    client_trust: ClientTrust,
    /// Cancelled when clients are verified by other files than these.
    distrusted: CancellationToken,
}

/// By whom clients are verified, and which of their certificates are revoked.
#[derive(Debug, Default, PartialEq, Eq)]
struct ClientTrust {
    authorities: Vec<TrustAnchor<'static>>,
    revocations: Vec<CertificateRevocationListDer<'static>>,
}

impl ListenerTls {
    /// Reads the files of the settings.
    ///
    /// # Errors
    /// The file that cannot be used.
    pub(super) fn open(settings: &ListenerTlsSettings, has_http2: bool) -> Result<Self, FileError> {
        let again = settings.clone();
        let files = WatchedFiles::open(
            paths(settings),
            || read_config(settings, has_http2),
            move |before: &VerifiedConfig| {
                let config = read_config(&again, has_http2).map_err(|error| with_causes(&error))?;
                Ok(config.after(before))
            },
        );
        Ok(Self(Arc::new(files?)))
    }

    /// Accepts a connection with the files that were read last. The token is cancelled when its client would be verified
    /// by others.
    pub(super) fn acceptor(&self) -> (TlsAcceptor, CancellationToken) {
        let current = self.0.current();
        let acceptor = Arc::clone(&current.server).into();
        (acceptor, current.distrusted.clone())
    }

    /// Reads the files again whenever one has changed. Does not return.
    pub(super) async fn follow_files(self) {
        let note = |reread: Reread<VerifiedConfig>| match reread {
            Reread::Unchanged | Reread::Failed { is_new: false, .. } => {}
            Reread::Replaced { before, now } => {
                if before.client_trust != now.client_trust {
                    before.distrusted.cancel();
                }
                tracing::info!("certificates of the listener read again");
            }
            Reread::Failed { cause, .. } => {
                tracing::error!(%cause, "certificates of the listener have changed and cannot be used; those before stay in use");
            }
        };
        self.0.keep_current(LOOK_EVERY, note).await;
    }
}

impl VerifiedConfig {
    /// The same as the successor of another: clients that both verify alike keep their connections.
    fn after(self, before: &Self) -> Self {
        let distrusted = match self.client_trust == before.client_trust {
            true => before.distrusted.clone(),
            false => self.distrusted,
        };
        Self { distrusted, ..self }
    }
}

fn paths(settings: &ListenerTlsSettings) -> Vec<PathBuf> {
    let of_certificates =
        (settings.certificates.iter()).flat_map(|files| [&files.certificate_file, &files.key_file]);
    let all = of_certificates.chain(&settings.client_ca_file);
    all.chain(&settings.client_crl_file).cloned().collect()
}

/// Reads and checks every file of the settings.
///
/// # Errors
/// The file that cannot be used.
pub(super) fn read_config(
    settings: &ListenerTlsSettings,
    has_http2: bool,
) -> Result<VerifiedConfig, FileError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let keys: Result<Vec<_>, _> = (settings.certificates.iter())
        .map(|files| {
            let (certificate, key) = (&files.certificate_file, &files.key_file);
            certified_key(certificate, key, &provider).map(Arc::new)
        })
        .collect();
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(refused_by_tls)?;
    let mut client_trust = ClientTrust::default();
    let builder = match &settings.client_ca_file {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let revocations = settings.client_crl_file.as_deref();
            client_trust = ClientTrust::read(path, revocations)?;
            let verifier = client_trust.verifier(provider).map_err(|error| {
                let guilty = match error {
                    VerifierBuilderError::InvalidCrl(_) => revocations.unwrap_or(path),
                    _ => path,
                };
                FileError::because(
                    format!(
                        "cannot verify client certificates with {}",
                        guilty.display()
                    ),
                    error,
                )
            });
            builder.with_client_cert_verifier(verifier?)
        }
    };
    let mut config = builder.with_cert_resolver(Arc::new(ByName(keys?)));
    config.alpn_protocols = match has_http2 {
        true => vec![HTTP2.to_vec(), HTTP1.to_vec()],
        false => vec![HTTP1.to_vec()],
    };
    Ok(VerifiedConfig {
        server: Arc::new(config),
        client_trust,
        distrusted: CancellationToken::new(),
    })
}

fn refused_by_tls(error: rustls::Error) -> FileError {
    FileError::because("cannot configure TLS", error)
}

impl ClientTrust {
    fn read(authorities: &Path, revocations: Option<&Path>) -> Result<Self, FileError> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(authorities)? {
            roots.add(certificate).map_err(refused_by_tls)?;
        }
        Ok(Self {
            authorities: roots.roots,
            revocations: revocations
                .map(revocation_lists)
                .transpose()?
                .unwrap_or_default(),
        })
    }

    fn verifier(
        &self,
        provider: Arc<CryptoProvider>,
    ) -> Result<Arc<dyn ClientCertVerifier>, VerifierBuilderError> {
        // Not every authority has to have a list.
        let roots = self.authorities.iter().cloned().collect::<RootCertStore>();
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .with_crls(self.revocations.iter().cloned())
            .allow_unknown_revocation_status()
            .build()
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
