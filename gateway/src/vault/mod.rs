//! The vault: the secrets that users store for servers, encrypted in the store that all gateways share.
//!
//! Invariants: a secret is read for its own user and server alone, because both are part of what is encrypted; the store
//! has neither a secret nor the name of a user; a gateway uses a secret for at most [`cache::CACHED_FOR`] after another
//! one has replaced or deleted it.

mod cache;
mod keys;

use std::fmt;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use mooring_session::names::{Principal, ServerName};

use self::cache::SecretCache;
use self::keys::VaultKeys;
use mooring_peers::fleet::{SealError, SecretCipher};
use mooring_secrets::file::FileError;
use mooring_settings::{AuthSettings, VaultSettings};
use mooring_store::{Store, StoreError, unix_now_ms};
use mooring_upstream::{UserSecret, UserSecretError, UserSecrets};

/// Longest secret in bytes: that of a header's value.
pub const SECRET_BYTES_MAX: usize = 8 * 1024;

/// The secrets of users.
pub struct Vault {
    store: Store,
    keys: VaultKeys,
    /// The authority for user names: with another issuer, a name is another user.
    realm: Box<str>,
    cache: SecretCache,
}

/// A secret as it is encrypted.
struct StoredSecret {
    stored_at_ms: u64,
    secret: UserSecret,
}

/// Why a secret was not stored, read or deleted.
#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    /// It cannot be sent in a header.
    #[error(
        "a credential is 1 to {SECRET_BYTES_MAX} printable ASCII characters, without a space at either end"
    )]
    Invalid,
    /// The store is away, or refuses it.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// It cannot be encrypted.
    #[error(transparent)]
    Seal(#[from] SealError),
}

impl Vault {
    /// Opens the vault with the keys of its file; none if no file is set.
    ///
    /// # Errors
    /// The file has no usable keys.
    pub fn open(
        settings: &VaultSettings,
        auth: &AuthSettings,
        store: Store,
    ) -> Result<Option<Arc<Self>>, FileError> {
        let Some(path) = &settings.keys_file else {
            return Ok(None);
        };
        Ok(Some(Arc::new(Self {
            store,
            keys: VaultKeys::read(path)?,
            realm: realm(auth).into(),
            cache: SecretCache::default(),
        })))
    }

    /// Stores a secret in place of any other that the user has stored for the server. Returns when, in Unix milliseconds.
    ///
    /// # Errors
    /// See [`VaultError`].
    pub async fn put(
        &self,
        server: &ServerName,
        user: &Principal,
        text: &str,
    ) -> Result<u64, VaultError> {
        if !is_sendable(text) {
            return Err(VaultError::Invalid);
        }
        let stored_at_ms = unix_now_ms();
        let stored = StoredSecret {
            stored_at_ms,
            secret: UserSecret {
                text: text.into(),
                version: rand::random(),
            },
        };
        let cipher = self.keys.cipher();
        let sealed = cipher.seal(&self.parts(server, user), &stored.to_bytes())?;
        let names = self.names(&cipher, server, user);
        let (name, of_other_keys) = names.split_first().ok_or(SealError)?;
        let put = self.store.put_sealed(name, &sealed).await;
        // It may have been stored even if the reply was lost.
        self.cache.forget(server, user);
        put?;
        self.store.delete_sealed(of_other_keys).await?;
        Ok(stored_at_ms)
    }

    /// When the user has stored a secret for each of these servers, in Unix milliseconds; none if there is none that
    /// can be read.
    ///
    /// # Errors
    /// The store's own only.
    pub async fn stored_at(
        &self,
        servers: &[&ServerName],
        user: &Principal,
    ) -> Result<Vec<Option<u64>>, VaultError> {
        let cipher = self.keys.cipher();
        let names = servers
            .iter()
            .map(|server| self.names(&cipher, server, user));
        let names: Vec<Vec<String>> = names.collect();
        let mut values = self.store.get_sealed(&names.concat()).await?.into_iter();
        let stored_at = servers.iter().zip(&names).map(|(server, names)| {
            let values: Vec<_> = values.by_ref().take(names.len()).collect();
            let stored = self.opened(&cipher, server, user, values).ok()?;
            Some(stored.stored_at_ms)
        });
        Ok(stored_at.collect())
    }

    /// Deletes what the user has stored for these servers. Returns whether there was something.
    ///
    /// # Errors
    /// The store's own only.
    pub async fn delete(
        &self,
        servers: &[&ServerName],
        user: &Principal,
    ) -> Result<bool, VaultError> {
        let cipher = self.keys.cipher();
        let names = servers
            .iter()
            .flat_map(|server| self.names(&cipher, server, user));
        let names: Vec<String> = names.collect();
        let deleted = self.store.delete_sealed(&names).await;
        for server in servers {
            self.cache.forget(server, user);
        }
        Ok(deleted?)
    }

    /// Keeps the keys current, until it is dropped.
    pub async fn keep_keys(&self) {
        self.keys.keep_current(|| self.cache.forget_all()).await;
    }

    async fn read(
        &self,
        server: &ServerName,
        user: &Principal,
    ) -> Result<UserSecret, UserSecretError> {
        let read = self.cache.begin_read();
        let cipher = self.keys.cipher();
        let names = self.names(&cipher, server, user);
        let values = self.store.get_sealed(&names).await.map_err(|error| {
            tracing::warn!(%server, %error, "a user's credential could not be read, so a request is refused");
            UserSecretError::Unavailable
        })?;
        let StoredSecret { secret, .. } = self.opened(&cipher, server, user, values)?;
        self.cache.remember(server, user, &secret, &read);
        Ok(secret)
    }

    /// The secret of the first key that has one.
    fn opened(
        &self,
        cipher: &SecretCipher,
        server: &ServerName,
        user: &Principal,
        values: Vec<Option<Vec<u8>>>,
    ) -> Result<StoredSecret, UserSecretError> {
        let found = values.into_iter().enumerate();
        let found = found
            .filter_map(|(name, value)| Some((name, value?)))
            .next();
        let (name, sealed) = found.ok_or(UserSecretError::Missing)?;
        let opened = cipher.open(name, &self.parts(server, user), &sealed);
        opened
            .and_then(|bytes| StoredSecret::of_bytes(&bytes))
            .ok_or_else(|| {
                tracing::error!(%server, "a stored credential was changed, or moved there from another user or server");
                UserSecretError::Unreadable
            })
    }

    fn parts<'a>(&'a self, server: &'a ServerName, user: &'a Principal) -> [&'a [u8]; 3] {
        [self.realm.as_ref(), user.as_str(), server.as_str()].map(str::as_bytes)
    }

    /// The names in the store: the server, and a keyed digest of the user.
    fn names(&self, cipher: &SecretCipher, server: &ServerName, user: &Principal) -> Vec<String> {
        let digests = cipher.names(&self.parts(server, user)).into_iter();
        digests.map(|digest| format!("{server}:{digest}")).collect()
    }
}

impl UserSecrets for Vault {
    fn get<'a>(
        &'a self,
        server: &'a ServerName,
        user: &'a Principal,
    ) -> BoxFuture<'a, Result<UserSecret, UserSecretError>> {
        match self.cache.get(server, user) {
            Some(secret) => std::future::ready(Ok(secret)).boxed(),
            None => self.read(server, user).boxed(),
        }
    }
}

impl fmt::Debug for Vault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Vault")
    }
}

impl StoredSecret {
    /// The time, the version and the text.
    fn to_bytes(&self) -> Vec<u8> {
        [
            &self.stored_at_ms.to_be_bytes()[..],
            &self.secret.version.to_be_bytes(),
            self.secret.text.as_bytes(),
        ]
        .concat()
    }

    fn of_bytes(bytes: &[u8]) -> Option<Self> {
        let (stored_at_ms, rest) = bytes.split_first_chunk()?;
        let (version, text) = rest.split_first_chunk()?;
        Some(Self {
            stored_at_ms: u64::from_be_bytes(*stored_at_ms),
            secret: UserSecret {
                text: std::str::from_utf8(text).ok()?.into(),
                version: u128::from_be_bytes(*version),
            },
        })
    }
}

/// The authority for user names.
fn realm(auth: &AuthSettings) -> &str {
    match auth {
        AuthSettings::None => "none",
        AuthSettings::TrustedHeader(_) => "trusted-header",
        AuthSettings::Jwt { tokens, .. } => &tokens.issuer,
        AuthSettings::ApiKey { .. } => "api-key",
        AuthSettings::Mtls { .. } => "mtls",
    }
}

/// Whether the value of a header can end with the text.
fn is_sendable(text: &str) -> bool {
    (1..=SECRET_BYTES_MAX).contains(&text.len())
        && text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
        && text.trim_ascii() == text
}
