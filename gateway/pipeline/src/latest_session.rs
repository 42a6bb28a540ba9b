//! The session that a client's connection has named last. A client names the same one in each request, and its key and
//! digest are made once.

use std::sync::{Mutex, PoisonError};

use mooring_session::names::{Principal, SessionId};

use mooring_router::affinity::Session;

/// The latest session of one connection; none before the first.
#[derive(Debug, Default)]
pub struct LatestSession(Mutex<Option<Session>>);

impl LatestSession {
    /// The session that a request of this principal names, as [`Session::named`] has it.
    pub(crate) fn named(&self, key_prefix: &str, id: SessionId, principal: &Principal) -> Session {
        let mut latest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(session) = &*latest
            && session.id == id
            && session.principal == *principal
        {
            return session.clone();
        }
        let named = Session::named(key_prefix, id, principal.clone());
        latest.insert(named).clone()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    #[test]
    fn another_id_or_user_is_another_session() {
        let latest = LatestSession::default();
        for (id, user) in [
            ("a", "ada"),
            ("a", "ada"),
            ("b", "ada"),
            ("b", "bob"),
            ("a", "ada"),
        ] {
            let id = SessionId::parse(id.as_bytes()).unwrap();
            let user = Principal::parse(user.as_bytes()).unwrap();
            let named = latest.named("mcpgw:", id.clone(), &user);
            let expected = Session::named("mcpgw:", id, user);
            assert_eq!(
                (&named.id, &named.principal),
                (&expected.id, &expected.principal)
            );
            assert_eq!((named.key, named.digest), (expected.key, expected.digest));
        }
    }
}
