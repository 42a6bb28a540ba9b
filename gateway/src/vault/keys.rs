//! The keys of the vault, read again when their file has changed.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use mooring_peers::fleet::{KeyRing, SecretCipher};
use mooring_secrets::file::FileError;
use mooring_secrets::watched_files::{Reread, WatchedFiles};
use mooring_upstream::with_causes;

/// How often the file is looked at.
const READ_INTERVAL: Duration = Duration::from_secs(5);

/// The current keys.
pub(super) struct VaultKeys(WatchedFiles<SecretCipher>);

impl VaultKeys {
    pub(super) fn read(path: &Path) -> Result<Self, FileError> {
        let path = path.to_owned();
        let paths = [path.clone()];
        let again = path.clone();
        let keys = WatchedFiles::open(
            paths,
            || read(&path),
            move |_| read(&again).map_err(|error| with_causes(&error)),
        );
        Ok(Self(keys?))
    }

    pub(super) fn cipher(&self) -> Arc<SecretCipher> {
        self.0.current()
    }

    /// Keeps the keys current, until it is dropped. `changed` is called when other ones are in use.
    pub(super) async fn keep_current(&self, changed: impl Fn()) {
        let note = |reread: Reread<SecretCipher>| match reread {
            // The names of nothing: one for each key.
            Reread::Replaced { before, now } if before.names(&[]) != now.names(&[]) => {
                changed();
                tracing::info!("other keys of the vault are in use");
            }
            Reread::Failed {
                cause,
                is_new: true,
            } => {
                tracing::warn!(%cause, "reading the keys of the vault failed; those before stay in use");
            }
            _ => {}
        };
        self.0.keep_current(READ_INTERVAL, note).await;
    }
}

fn read(path: &Path) -> Result<SecretCipher, FileError> {
    let ring = KeyRing::read(path)?;
    SecretCipher::new(&ring)
        .map_err(|error| FileError::because("the keys of the vault cannot be used", error))
}
