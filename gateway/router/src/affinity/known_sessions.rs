//! The sessions of clients that have none of their own, as far as this gateway knows that they exist.
//!
//! Invariant: a session that was found to exist is used without asking again, because a use of it fails visibly once it has
//! ended. One that was idle here for as long as it may be is asked for.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use mooring_protocol::Revision;
use mooring_store::SessionKey;
use mooring_usage::BoundedCache;

/// Most sessions that a gateway remembers to exist. Each of the others costs some store commands when it is used.
const SESSIONS_MAX: usize = 16_384;

/// A session that was opened in its client's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContinuedSession {
    /// The revision that its server chose.
    pub revision: Revision,
    /// How it began, if this request has begun it, or no result has reported yet that an earlier one is lost.
    pub beginning: Option<SessionBeginning>,
}

/// How a session began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionBeginning {
    /// Nothing is known of an earlier one under its key.
    First,
    /// An earlier one under its key has expired, or was ended with its state.
    Again,
}

/// The sessions that were found to exist, and when.
#[derive(Debug)]
pub(super) struct ContinuedSessions(Mutex<BoundedCache<SessionKey, (Revision, Instant)>>);

impl Default for ContinuedSessions {
    fn default() -> Self {
        Self(Mutex::new(BoundedCache::new(SESSIONS_MAX)))
    }
}

impl ContinuedSessions {
    /// The revision of a session that was used here within `kept`, which this use extends.
    pub(super) fn get(&self, key: &SessionKey, kept: Duration) -> Option<Revision> {
        let mut sessions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (revision, used_at) = *sessions.get(key)?;
        if used_at.elapsed() >= kept {
            sessions.remove(key);
            return None;
        }
        sessions.insert(key.clone(), (revision, Instant::now()));
        Some(revision)
    }

    pub(super) fn note(&self, key: &SessionKey, revision: Revision) {
        let mut sessions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.insert(key.clone(), (revision, Instant::now()));
    }

    pub(super) fn forget(&self, key: &SessionKey) {
        let mut sessions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.remove(key);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use mooring_session::names::SessionId;

    use super::*;

    #[test]
    fn a_session_is_known_for_a_while_after_its_use() {
        let sessions = ContinuedSessions::default();
        let key = SessionKey::mcp("mcpgw:", &SessionId::parse(b"a").unwrap());
        let hour = Duration::from_secs(3600);
        assert_eq!(sessions.get(&key, hour), None);
        sessions.note(&key, Revision::V2025_06_18);
        assert_eq!(sessions.get(&key, hour), Some(Revision::V2025_06_18));
        assert_eq!(sessions.get(&key, Duration::ZERO), None);
        assert_eq!(sessions.get(&key, hour), None, "it was idle for too long");
        sessions.note(&key, Revision::V2025_06_18);
        sessions.forget(&key);
        assert_eq!(sessions.get(&key, hour), None);
    }
}
