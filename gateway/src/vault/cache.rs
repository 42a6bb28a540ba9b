//! The secrets that were read from the store a moment ago.
//!
//! Invariant: a secret is given for at most [`CACHED_FOR`] after the store was asked for it, and never again after it was
//! forgotten, also by a read that was under way then.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use mooring_session::names::{Principal, ServerName};
use mooring_upstream::UserSecret;
use mooring_usage::BoundedCache;

/// How long a secret is used without reading it again. One that is missing is looked for with every request.
pub(super) const CACHED_FOR: Duration = Duration::from_secs(3);
/// Most secrets in memory.
const CACHED_MAX: usize = 10_000;

/// Secrets by their owners.
pub(super) struct SecretCache(Mutex<CachedSecrets>);

struct CachedSecrets {
    secrets: BoundedCache<Owner, CachedSecret>,
    /// Grows when secrets are forgotten.
    generation: u64,
}

/// The owner and purpose of a secret.
#[derive(PartialEq, Eq, Hash)]
struct Owner {
    server: ServerName,
    user: Principal,
}

struct CachedSecret {
    secret: UserSecret,
    until: Instant,
}

/// A read from the store that begins now.
pub(super) struct SecretRead {
    began_at: Instant,
    generation: u64,
}

impl Default for SecretCache {
    fn default() -> Self {
        Self(Mutex::new(CachedSecrets {
            secrets: BoundedCache::new(CACHED_MAX),
            generation: 0,
        }))
    }
}

impl SecretCache {
    pub(super) fn get(&self, server: &ServerName, user: &Principal) -> Option<UserSecret> {
        let cached = self.lock();
        let found = cached.secrets.peek(&Owner::of(server, user))?;
        (Instant::now() < found.until).then(|| found.secret.clone())
    }

    pub(super) fn begin_read(&self) -> SecretRead {
        SecretRead {
            began_at: Instant::now(),
            generation: self.lock().generation,
        }
    }

    /// Remembers what was read, unless secrets were forgotten meanwhile: this may be one of them.
    pub(super) fn remember(
        &self,
        server: &ServerName,
        user: &Principal,
        secret: &UserSecret,
        read: &SecretRead,
    ) {
        let mut cached = self.lock();
        if cached.generation != read.generation {
            return;
        }
        let secret = CachedSecret {
            secret: secret.clone(),
            until: read.began_at + CACHED_FOR,
        };
        cached.secrets.insert(Owner::of(server, user), secret);
    }

    pub(super) fn forget(&self, server: &ServerName, user: &Principal) {
        let mut cached = self.lock();
        cached.generation = cached.generation.wrapping_add(1);
        cached.secrets.remove(&Owner::of(server, user));
    }

    pub(super) fn forget_all(&self) {
        let mut cached = self.lock();
        cached.generation = cached.generation.wrapping_add(1);
        cached.secrets.clear();
    }

    fn lock(&self) -> MutexGuard<'_, CachedSecrets> {
        // It is consistent after every statement, so a poisoned lock is usable.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Owner {
    fn of(server: &ServerName, user: &Principal) -> Self {
        Self {
            server: server.clone(),
            user: user.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    #[test]
    fn a_read_is_remembered_from_its_begin_and_not_across_a_change() {
        let cache = SecretCache::default();
        let (server, user) = (ServerName::parse(b"tools").unwrap(), Principal::local());
        let secret = UserSecret {
            text: "secret".into(),
            version: 1,
        };
        let remember = |read: &SecretRead| cache.remember(&server, &user, &secret, read);
        let is_cached = || cache.get(&server, &user).is_some();
        remember(&cache.begin_read());
        assert!(is_cached());

        let read = cache.begin_read();
        cache.forget(&server, &user);
        remember(&read);
        assert!(!is_cached(), "what was forgotten meanwhile");
        let read = cache.begin_read();
        cache.forget_all();
        remember(&read);
        assert!(!is_cached());

        let mut read = cache.begin_read();
        read.began_at -= CACHED_FOR;
        remember(&read);
        assert!(!is_cached(), "the reply took as long as a secret is used");
    }
}
