//! Certificates, revocation lists and private keys from files in PEM.
//!
//! Invariant: a private key that others may read is not used.

use std::path::{Path, PathBuf};

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

use mooring_secrets::file::{self, SecretFileError};

/// Longest private key file.
const KEY_FILE_BYTES_MAX: u64 = 64 * 1024;

/// Why a file of certificates, revocation lists or keys cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CertificateFileError {
    /// A file cannot be read, or is not PEM.
    #[error("cannot read {item}s from {}", path.display())]
    Unreadable {
        /// What it should have, in the singular.
        item: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        error: pem::Error,
    },
    /// A file has nothing of what it should have.
    #[error("{} has no {item} in PEM", path.display())]
    Empty {
        /// What it should have, in the singular.
        item: &'static str,
        /// The file.
        path: PathBuf,
    },
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
}

/// A certificate with its chain, and its private key.
///
/// # Errors
/// See [`CertificateFileError`].
pub(crate) fn certified_key(
    certificate: &Path,
    key: &Path,
    provider: &CryptoProvider,
) -> Result<CertifiedKey, CertificateFileError> {
    let chain = certificates(certificate)?;
    let text = file::read(key, KEY_FILE_BYTES_MAX)?;
    let private_key = PrivateKeyDer::from_pem_slice(&text)
        .map_err(|_| CertificateFileError::NoKey(key.to_owned()))?;
    CertifiedKey::from_der(chain, private_key, provider).map_err(|error| {
        CertificateFileError::Mismatch {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
            error,
        }
    })
}

/// Every certificate of a file, at least one.
///
/// # Errors
/// See [`CertificateFileError`].
pub(crate) fn certificates(
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, CertificateFileError> {
    items("certificate", path)
}

/// Every revocation list of a file, at least one.
///
/// # Errors
/// See [`CertificateFileError`].
pub(crate) fn revocation_lists(
    path: &Path,
) -> Result<Vec<CertificateRevocationListDer<'static>>, CertificateFileError> {
    items("revocation list", path)
}

fn items<T: PemObject>(item: &'static str, path: &Path) -> Result<Vec<T>, CertificateFileError> {
    let failed = |error| CertificateFileError::Unreadable {
        item,
        path: path.to_owned(),
        error,
    };
    let read = T::pem_file_iter(path).map_err(failed)?;
    let items: Vec<T> = read.collect::<Result<_, _>>().map_err(failed)?;
    match items.is_empty() {
        true => Err(CertificateFileError::Empty {
            item,
            path: path.to_owned(),
        }),
        false => Ok(items),
    }
}
