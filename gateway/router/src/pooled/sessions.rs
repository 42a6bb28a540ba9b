//! The upstream sessions that requests share, by what the requests have in common.
//!
//! Invariants: principals share no session; no session is used on with another secret of its principal than it was
//! initialized with, or with a token in exchange for another one of its principal's.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use mooring_session::names::{InstanceName, Principal, ServerName, UpstreamSession};
use tokio::sync::OnceCell;

use mooring_upstream::{Answer, Caller, Instance, Server};

/// Most pooled upstream sessions per gateway; at the limit the longest idle one is removed.
const SESSIONS_MAX: usize = 10_000;

/// An upstream session of the gateway itself.
#[derive(Clone, Debug)]
pub struct PooledSession {
    /// The id that the instance assigned, if it is stateful.
    pub upstream_session: Option<UpstreamSession>,
    /// The instance's answer to `initialize`, which clients get as theirs.
    pub answer: Answer,
}

/// What requests must have in common to share an upstream session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct SessionKey {
    server: ServerName,
    instance: InstanceName,
    principal: Principal,
    pub(super) revision: Box<str>,
    /// The SHA-256 of the caller's token where it is exchanged: another token of the principal may have other rights.
    token: Option<[u8; 32]>,
}

impl SessionKey {
    pub(super) fn new(
        server: &Server,
        instance: &Instance,
        caller: &Caller<'_>,
        revision: &str,
    ) -> Self {
        Self {
            server: server.id.clone(),
            instance: instance.name.clone(),
            principal: caller.principal.clone(),
            revision: revision.into(),
            token: server.exchanged_token_digest(caller),
        }
    }

    /// The instance that has the session.
    pub(super) const fn instance(&self) -> &InstanceName {
        &self.instance
    }

    /// Whose requests share it.
    pub(super) const fn principal(&self) -> &Principal {
        &self.principal
    }
}

/// The sessions of this gateway. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct PooledSessions(Arc<Mutex<HashMap<SessionKey, Entry>>>);

#[derive(Debug)]
struct Entry {
    session: Arc<OnceCell<PooledSession>>,
    /// The version of the principal's secret with which it was initialized.
    secret: Option<u128>,
    used_at: Instant,
}

impl PooledSessions {
    /// The session that was initialized with this secret, or a new one.
    pub(super) fn cell(
        &self,
        key: &SessionKey,
        secret: Option<u128>,
    ) -> Arc<OnceCell<PooledSession>> {
        let mut sessions = self.lock();
        if sessions.len() >= SESSIONS_MAX && !sessions.contains_key(key) {
            let idle_for_longest = sessions
                .iter()
                .min_by_key(|(_, entry)| entry.used_at)
                .map(|(key, _)| key.clone());
            if let Some(key) = idle_for_longest {
                sessions.remove(&key);
            }
        }
        let new = || Entry {
            session: Arc::default(),
            secret,
            used_at: Instant::now(),
        };
        let entry = sessions.entry(key.clone()).or_insert_with(new);
        if entry.secret != secret {
            *entry = new();
        }
        entry.used_at = Instant::now();
        Arc::clone(&entry.session)
    }

    /// The session that was initialized with this secret, if there is one.
    pub(super) fn find(&self, key: &SessionKey, secret: Option<u128>) -> Option<PooledSession> {
        let sessions = self.lock();
        let entry = sessions.get(key).filter(|entry| entry.secret == secret)?;
        entry.session.get().cloned()
    }

    /// Removes a lost session, unless another request has already replaced it.
    pub(super) fn remove(&self, key: &SessionKey, lost: &PooledSession) {
        let mut sessions = self.lock();
        let is_present = sessions
            .get(key)
            .and_then(|entry| entry.session.get())
            .is_some_and(|session| session.upstream_session == lost.upstream_session);
        if is_present {
            sessions.remove(key);
        }
    }

    /// Removes the sessions of this server, and returns those that are initialized.
    pub(super) fn take_of(&self, server: &ServerName) -> Vec<(SessionKey, PooledSession)> {
        let mut sessions = self.lock();
        let taken = sessions.extract_if(|key, _| key.server == *server);
        taken
            .filter_map(|(key, entry)| Some((key, entry.session.get().cloned()?)))
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionKey, Entry>> {
        // The map is consistent after every statement, so a poisoned lock is usable.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::indexing_slicing,
        reason = "tests fail by panicking"
    )]
    use bytes::Bytes;
    use http::{HeaderMap, StatusCode};
    use mooring_secrets::access_token::AccessToken;
    use mooring_session::rules::Ownership;
    use mooring_settings::{
        Affinity, ClientAuthentication, Concurrency, Continuity, LostStateNotice, OauthSettings,
        OnUpstreamLoss, TokenGrant,
    };
    use mooring_upstream::{OauthTokens, SessionPolicy};

    use super::*;

    fn server() -> Server {
        let name = InstanceName::parse(b"http://tools.example/mcp").unwrap();
        let instance = Instance::new(name, "http://tools.example/mcp".parse().unwrap());
        let policy = SessionPolicy {
            affinity: Affinity::Off,
            ownership: Ownership::Shared,
            concurrency: Concurrency::Serial,
            on_upstream_loss: OnUpstreamLoss::Reinitialize,
            lost_state_notice: LostStateNotice::Content,
            continuity: Continuity::None,
        };
        let id = ServerName::parse(b"tools").unwrap();
        Server::new(id, vec![Arc::new(instance)], policy, HeaderMap::new())
    }

    fn server_with(grant: TokenGrant) -> Server {
        let settings = OauthSettings {
            grant,
            token_url: "https://login.example/token".parse().unwrap(),
            client_id: "gateway".to_owned(),
            client_secret_file: "/none".into(),
            authentication: ClientAuthentication::Basic,
            scopes: Vec::new(),
            resource: None,
            audience: None,
        };
        let mut server = server();
        server.tokens = Some(Arc::new(OauthTokens::new(server.id.clone(), settings)));
        server
    }

    #[test]
    fn two_tokens_share_a_session_unless_they_are_exchanged() {
        let principal = Principal::local();
        let tokens = [1, 2].map(|number| Arc::new(AccessToken::new("a", [number; 32], u64::MAX)));
        for (server, is_shared) in [
            (server(), true),
            (server_with(TokenGrant::ClientCredentials), true),
            (server_with(TokenGrant::TokenExchange), false),
        ] {
            let of_token = |token| {
                let caller = Caller {
                    token: Some(token),
                    ..Caller::of(&principal)
                };
                SessionKey::new(&server, &server.instances[0], &caller, "2025-11-25")
            };
            let [first, second] = tokens.each_ref().map(of_token);
            assert_eq!(first == second, is_shared);
            let [again, _] = tokens.each_ref().map(of_token);
            assert_eq!(first, again);
        }
    }

    #[test]
    fn a_session_of_another_secret_is_not_used() {
        let sessions = PooledSessions::default();
        let (server, principal) = (server(), Principal::local());
        let caller = Caller::of(&principal);
        let key = SessionKey::new(&server, &server.instances[0], &caller, "2025-11-25");
        let session = PooledSession {
            upstream_session: None,
            answer: Answer {
                status: StatusCode::OK,
                upstream_session: None,
                text: Bytes::new(),
            },
        };
        let opened = sessions.cell(&key, Some(1));
        assert!(sessions.find(&key, Some(1)).is_none(), "not open yet");
        opened.set(session).unwrap();
        assert!(sessions.find(&key, Some(1)).is_some());
        for other in [Some(2), None] {
            assert!(sessions.find(&key, other).is_none(), "{other:?}");
        }
    }
}
