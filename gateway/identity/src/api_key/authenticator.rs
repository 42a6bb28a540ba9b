//! The identity of a request with an API key.
//!
//! Invariant: a file that cannot be read changes nothing: the keys that were read before stay in use.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName};
use mooring_secrets::file::FileError;
use mooring_secrets::watched_files::{Reread, WatchedFiles};
use mooring_upstream::with_causes;

use super::WrittenKey;
use super::file::{ApiKeyFile, ITEMS_MAX, StoredApiKey};
use crate::bearer::TokenScheme;
use crate::credential::VerifiedCredential;
use crate::error::{ApiKeyError, IdentityError};
use crate::identity::Identity;
use crate::key_source::KeysState;
use crate::metrics::{self, KeysRead};
use crate::{bearer, value};

/// How often it is seen whether the file has changed.
const INTERVAL: Duration = Duration::from_secs(2);
/// The header that has a key, where the Authorization header has none.
const API_KEY_HEADER: HeaderName = HeaderName::from_static("x-api-key");

/// Finds whom API keys are from.
#[derive(Debug)]
pub(crate) struct ApiKeyAuthenticator {
    /// None before they are read for the first time.
    keys: WatchedFiles<Option<KnownKeys>>,
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

impl KnownKey {
    fn owner(&self, now: u64) -> Result<Arc<Identity>, IdentityError> {
        match self {
            known if known.is_revoked => Err(ApiKeyError::Revoked.into()),
            known if known.expires_at <= now => Err(ApiKeyError::Expired.into()),
            known => Ok(Arc::clone(&known.identity)),
        }
    }
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
        let paths = [path.clone()];
        let read = move |_: &_| {
            read_keys(&path)
                .map(Some)
                .map_err(|error| with_causes(&error))
        };
        Self {
            keys: WatchedFiles::unread(paths, None, read),
        }
    }

    /// The identity of this key's owner, at this time in seconds since 1970.
    pub(crate) fn identify(&self, text: &str, now: u64) -> Result<Arc<Identity>, IdentityError> {
        let keys = self.keys.current();
        let keys = Option::as_ref(&keys).ok_or(IdentityError::KeysUnavailable)?;
        let written = WrittenKey::read(text).ok_or(ApiKeyError::Unknown)?;
        let known = keys.get(written.id).ok_or(ApiKeyError::Unknown)?;
        // The time of this comparison may tell something of the digest, from which no secret follows.
        if known.digest != written.digest {
            return Err(ApiKeyError::Unknown.into());
        }
        known.owner(now)
    }

    /// The same, with what the key is found by again.
    pub(crate) fn verify(&self, text: &str, now: u64) -> Result<VerifiedCredential, IdentityError> {
        let identity = self.identify(text, now)?;
        let written = WrittenKey::read(text).ok_or(ApiKeyError::Unknown)?;
        let keys = self.keys.current();
        let known = Option::as_ref(&keys).and_then(|keys| keys.get(written.id));
        let known = known.ok_or(ApiKeyError::Unknown)?;
        Ok(VerifiedCredential {
            identity,
            accepted_until: known.expires_at,
            api_key: Some(written.id.into()),
        })
    }

    /// The owner of the key of this id, which was verified before.
    pub(crate) fn owner(&self, id: &str, now: u64) -> Result<Arc<Identity>, IdentityError> {
        let keys = self.keys.current();
        let keys = Option::as_ref(&keys).ok_or(IdentityError::KeysUnavailable)?;
        keys.get(id).ok_or(ApiKeyError::Unknown)?.owner(now)
    }

    pub(crate) fn state(&self) -> KeysState {
        KeysState {
            keys: Option::as_ref(&self.keys.current()).map(HashMap::len),
            failure: self.keys.failure(),
        }
    }

    /// Reads the file if it has changed since it was read last, or could not be read then.
    pub(crate) async fn read_if_changed(&self) {
        note(self.keys.read_if_changed().await);
    }

    /// Keeps the keys current, until it is dropped.
    pub(crate) async fn keep_current(&self) {
        self.keys.keep_current(INTERVAL, note).await;
    }
}

/// Logs and counts an attempt to read the file.
fn note(reread: Reread<Option<KnownKeys>>) {
    match reread {
        Reread::Unchanged => {}
        Reread::Replaced { now, .. } => {
            let keys = Option::as_ref(&now).map_or(0, HashMap::len);
            tracing::info!(keys, "the API keys were read");
            metrics::keys_read(KeysRead::Ok);
        }
        Reread::Failed { cause, is_new } => {
            metrics::keys_read(KeysRead::Failed);
            if is_new {
                tracing::warn!(%cause, "reading the API keys failed; those before stay in use");
            }
        }
    }
}

fn read_keys(path: &Path) -> Result<KnownKeys, FileError> {
    known_keys(ApiKeyFile::read(path)?.keys())
}

/// The keys as requests are compared with them.
pub(super) fn known_keys(stored: &[StoredApiKey]) -> Result<KnownKeys, FileError> {
    let mut keys = HashMap::with_capacity(stored.len());
    for key in stored {
        let refused = || FileError::new(format!("the API key {:?} is not valid", key.id));
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
