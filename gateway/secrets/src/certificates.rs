//! Certificates, revocation lists and private keys from files in PEM.
//!
//! Invariant: a private key that others may read is not used.

use std::path::Path;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

use crate::file::{self, FileError};

/// Longest private key file.
const KEY_FILE_BYTES_MAX: u64 = 64 * 1024;

/// A certificate with its chain, and its private key.
///
/// # Errors
/// The file that cannot be used.
pub fn certified_key(
    certificate: &Path,
    key: &Path,
    provider: &CryptoProvider,
) -> Result<CertifiedKey, FileError> {
    let chain = certificates(certificate)?;
    let text = file::read(key, KEY_FILE_BYTES_MAX)?;
    let private_key = PrivateKeyDer::from_pem_slice(&text)
        .map_err(|_| FileError::new(format!("{} has no private key in PEM", key.display())))?;
    CertifiedKey::from_der(chain, private_key, provider).map_err(|error| {
        let (key, certificate) = (key.display(), certificate.display());
        let sentence = format!("the key in {key} does not fit the certificate in {certificate}");
        FileError::because(sentence, error)
    })
}

/// Every certificate of a file, at least one.
///
/// # Errors
/// The file that cannot be used.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, FileError> {
    items("certificate", path)
}

/// Every revocation list of a file, at least one.
///
/// # Errors
/// The file that cannot be used.
pub fn revocation_lists(
    path: &Path,
) -> Result<Vec<CertificateRevocationListDer<'static>>, FileError> {
    items("revocation list", path)
}

fn items<T: PemObject>(item: &'static str, path: &Path) -> Result<Vec<T>, FileError> {
    let failed = |error: pem::Error| {
        FileError::because(
            format!("cannot read {item}s from {}", path.display()),
            error,
        )
    };
    let read = T::pem_file_iter(path).map_err(failed)?;
    let items: Vec<T> = read.collect::<Result<_, _>>().map_err(failed)?;
    match items.is_empty() {
        true => Err(FileError::new(format!(
            "{} has no {item} in PEM",
            path.display()
        ))),
        false => Ok(items),
    }
}
