//! The identity of a request with an API key.
//!
//! Invariant: a file that cannot be read changes nothing: the keys that were read before stay in use.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName};
use mooring_secrets::file::FileVersion;
use mooring_upstream::with_causes;
use tokio::sync::Mutex;

use super::file::{ApiKeyFile, ApiKeyFileError, ITEMS_MAX, StoredApiKey};
use super::{ApiKeyError, WrittenKey};
use crate::bearer::TokenScheme;
use crate::key_source::KeysState;
use crate::metrics::{self, KeysRead};
use crate::{Identity, IdentityError, bearer, value};

/// How often it is seen whether the file has changed.
const INTERVAL: Duration = Duration::from_secs(2);
/// The header that has a key, where the Authorization header has none.
const API_KEY_HEADER: HeaderName = HeaderName::from_static("x-api-key");

/// Finds whom API keys are from.
#[derive(Debug)]
pub(crate) struct ApiKeyAuthenticator {
    path: PathBuf,
    keys: RwLock<Option<KnownKeys>>,
    failure: RwLock<Option<Box<str>>>,
    /// The version of the file that the keys are from; none after a failure, so that it is read again.
    read: Mutex<Option<FileVersion>>,
}

/// The keys of the file by their ids.
type KnownKeys = HashMap<Box<str>, KnownKey>;

/// A key of the file.
#[derive(Debug)]
pub(super) struct KnownKey {
    digest: [u8; 32],
    identity: Arc<Identity>,
    expires_at: u64,
    is_revoked: bool,
}

/// The key of a request, from one of the two headers that may have it.
pub(crate) fn key_of(headers: &HeaderMap) -> Result<&str, IdentityError> {
    let mut values = headers.get_all(API_KEY_HEADER).iter();
    let Some(value) = values.next() else {
        return match bearer::token_of(headers) {
            Ok((TokenScheme::Bearer, key)) => Ok(key),
            Ok((TokenScheme::Dpop, _)) | Err(IdentityError::TokenMissing) => {
                Err(IdentityError::ApiKeyMissing)
            }
            Err(error) => Err(error),
        };
    };
    if values.next().is_some() || headers.contains_key(AUTHORIZATION) {
        return Err(IdentityError::SeveralCredentials);
    }
    value.to_str().map_err(|_| ApiKeyError::Unknown.into())
}

impl ApiKeyAuthenticator {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self {
            path,
            keys: RwLock::default(),
            failure: RwLock::default(),
            read: Mutex::default(),
        }
    }

    /// The identity of this key's owner, at this time in seconds since 1970.
    pub(crate) fn identify(&self, text: &str, now: u64) -> Result<Arc<Identity>, IdentityError> {
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        let keys = keys.as_ref().ok_or(IdentityError::KeysUnavailable)?;
        let written = WrittenKey::read(text).ok_or(ApiKeyError::Unknown)?;
        let known = keys.get(written.id).ok_or(ApiKeyError::Unknown)?;
        // The time of this comparison may tell something of the digest, from which no secret follows.
        if known.digest != written.digest {
            return Err(ApiKeyError::Unknown.into());
        }
        match known {
            known if known.is_revoked => Err(ApiKeyError::Revoked.into()),
            known if known.expires_at <= now => Err(ApiKeyError::Expired.into()),
            known => Ok(Arc::clone(&known.identity)),
        }
    }

    pub(crate) fn state(&self) -> KeysState {
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        let failure = self.failure.read().unwrap_or_else(PoisonError::into_inner);
        KeysState {
            keys: keys.as_ref().map(|keys| keys.len()),
            failure: failure.clone(),
        }
    }

    /// Reads the file if it has changed since it was read last, or could not be read then.
    pub(crate) async fn read_if_changed(&self) {
        let mut read = self.read.lock().await;
        let (path, before) = (self.path.clone(), *read);
        let reading = tokio::task::spawn_blocking(move || {
            // Before it is read: a change in between is noticed, too.
            let version = FileVersion::of(&path);
            (version.is_none() || version != before).then(|| (version, read_keys(&path)))
        });
        let (version, keys) = match reading.await {
            Ok(Some(done)) => done,
            Ok(None) => return,
            Err(error) => return tracing::error!(%error, "reading the API keys panicked"),
        };
        *read = version.filter(|_| keys.is_ok());
        let failure = match keys {
            Ok(keys) => {
                tracing::info!(keys = keys.len(), "the API keys were read");
                metrics::keys_read(KeysRead::Ok);
                *self.keys.write().unwrap_or_else(PoisonError::into_inner) = Some(keys);
                None
            }
            Err(error) => {
                let cause: Box<str> = with_causes(&error).into();
                self.note_failure(&cause);
                Some(cause)
            }
        };
        *self.failure.write().unwrap_or_else(PoisonError::into_inner) = failure;
    }

    /// A file that cannot be read is tried every two seconds, and each cause is logged once.
    fn note_failure(&self, cause: &str) {
        metrics::keys_read(KeysRead::Failed);
        let before = self.failure.read().unwrap_or_else(PoisonError::into_inner);
        if before.as_deref() != Some(cause) {
            tracing::warn!(%cause, "reading the API keys failed; those before stay in use");
        }
    }

    /// Keeps the keys current, until it is dropped.
    pub(crate) async fn keep_current(&self) {
        loop {
            tokio::time::sleep(INTERVAL).await;
            self.read_if_changed().await;
        }
    }
}

fn read_keys(path: &Path) -> Result<KnownKeys, ApiKeyFileError> {
    known_keys(ApiKeyFile::read(path)?.keys())
}

/// The keys as requests are compared with them.
pub(super) fn known_keys(stored: &[StoredApiKey]) -> Result<KnownKeys, ApiKeyFileError> {
    let mut keys = HashMap::with_capacity(stored.len());
    for key in stored {
        let refused = || ApiKeyFileError::Key(key.id.clone());
        let known = known_key(key).ok_or_else(refused)?;
        if keys.insert(Box::from(&*key.id), known).is_some() {
            return Err(refused());
        }
    }
    Ok(keys)
}

fn known_key(key: &StoredApiKey) -> Option<KnownKey> {
    let items =
        |items: &[String]| value::distinct_items(items.iter().map(String::as_str), ITEMS_MAX).ok();
    Some(KnownKey {
        digest: key.digest()?,
        identity: Arc::new(Identity {
            principal: value::principal(&key.user)?,
            teams: items(&key.teams)?.into(),
            roles: items(&key.roles)?,
            scopes: items(&key.scopes)?,
            token: None,
        }),
        expires_at: key.expires_at,
        is_revoked: key.revoked_at.is_some(),
    })
}
