//! The keys of the vault, read again when their file has changed.
//!
//! Invariant: a file that cannot be read changes nothing: the keys that were read before stay in use.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use mooring_peers::fleet::{KeyRing, KeyRingError, SealError, SecretCipher};
use mooring_upstream::with_causes;

/// How often the file is read.
const READ_INTERVAL: Duration = Duration::from_secs(5);

/// Why there are no keys.
#[derive(Debug, thiserror::Error)]
pub enum VaultKeysError {
    /// The file has none that can be used.
    #[error(transparent)]
    File(#[from] KeyRingError),
    /// They are no keys of the cipher.
    #[error(transparent)]
    Cipher(#[from] SealError),
}

/// The current keys.
pub(super) struct VaultKeys {
    path: PathBuf,
    cipher: RwLock<Arc<SecretCipher>>,
}

impl VaultKeys {
    pub(super) fn read(path: &Path) -> Result<Self, VaultKeysError> {
        Ok(Self {
            cipher: RwLock::new(Arc::new(read(path)?)),
            path: path.to_owned(),
        })
    }

    pub(super) fn cipher(&self) -> Arc<SecretCipher> {
        Arc::clone(&self.cipher.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Keeps the keys current, until it is dropped. `changed` is called when other ones are in use.
    pub(super) async fn keep_current(&self, changed: impl Fn()) {
        let mut failure = None;
        loop {
            tokio::time::sleep(READ_INTERVAL).await;
            let path = self.path.clone();
            let reading = tokio::task::spawn_blocking(move || read(&path));
            match reading.await {
                Ok(Ok(cipher)) => {
                    failure = None;
                    // The names of nothing: one for each key.
                    if cipher.names(&[]) != self.cipher().names(&[]) {
                        *self.cipher.write().unwrap_or_else(PoisonError::into_inner) =
                            Arc::new(cipher);
                        changed();
                        tracing::info!("other keys of the vault are in use");
                    }
                }
                Ok(Err(error)) => {
                    let cause = with_causes(&error);
                    if failure.as_ref() != Some(&cause) {
                        tracing::warn!(%cause, "reading the keys of the vault failed; those before stay in use");
                        failure = Some(cause);
                    }
                }
                Err(error) => tracing::error!(%error, "reading the keys of the vault panicked"),
            }
        }
    }
}

fn read(path: &Path) -> Result<SecretCipher, VaultKeysError> {
    Ok(SecretCipher::new(&KeyRing::read(path)?)?)
}
