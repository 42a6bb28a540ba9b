//! Seals on the ids of server-to-client requests: a client can return them to any gateway but cannot forge them.
//!
//! An id is valid only for the session, principal, server and epoch for which it was made.

use std::sync::Arc;

use mooring_session::names::{Principal, ServerName};

use crate::affinity::Session;
use mooring_peers::fleet::SealKey;
use mooring_protocol::ids::{Epoch, Seal, ServerRequestId};
use mooring_protocol::marker::Marker;
use mooring_store::SessionKey;
use mooring_upstream::Server;

/// Makes and verifies seals, if the fleet has keys.
#[derive(Clone, Debug, Default)]
pub struct Seals(Option<Arc<SealKey>>);

impl Seals {
    /// Seals with this key; without one, ids are not sealed.
    #[must_use]
    pub fn new(key: Option<SealKey>) -> Self {
        Self(key.map(Arc::new))
    }

    /// The marker for messages to a session over the binding of `epoch`.
    pub(super) fn marker(&self, session: &Session, server: &Server, epoch: Epoch) -> Marker {
        let Some(key) = &self.0 else {
            return Marker::of(epoch);
        };
        let (key, scope) = (Arc::clone(key), Scope::of(session, server));
        Marker::sealing(
            epoch,
            Arc::new(move |epoch, id| Seal(scope.with(epoch, id, |parts| key.tag(parts)))),
        )
    }

    /// The seal of these parts as text, for an id that the gateway gives a client; empty without keys.
    #[must_use]
    pub fn seal(&self, parts: &[&[u8]]) -> String {
        let key = self.0.as_ref();
        key.map_or_else(String::new, |key| format!("{:032x}", key.tag(parts)))
    }

    /// Whether the seal was made of these parts.
    #[must_use]
    pub fn is_seal_of(&self, parts: &[&[u8]], seal: &str) -> bool {
        match &self.0 {
            None => seal.is_empty(),
            Some(key) => u128::from_str_radix(seal, 16).is_ok_and(|tag| key.verify(parts, tag)),
        }
    }

    /// Whether the gateway made this id for this session.
    #[must_use]
    pub fn is_genuine(
        &self,
        session: &Session,
        server: &Server,
        request: &ServerRequestId<'_>,
    ) -> bool {
        let Some(key) = &self.0 else {
            return true;
        };
        request.seal.is_some_and(|Seal(tag)| {
            let scope = Scope::of(session, server);
            scope.with(request.epoch, &request.id, |parts| key.verify(parts, tag))
        })
    }
}

/// The scope of an id, besides the epoch.
struct Scope {
    key: SessionKey,
    principal: Principal,
    server: ServerName,
}

impl Scope {
    fn of(session: &Session, server: &Server) -> Self {
        Self {
            key: session.key.clone(),
            principal: session.principal.clone(),
            server: server.id.clone(),
        }
    }

    /// Calls `use_parts` with the sealed parts.
    fn with<T>(&self, epoch: Epoch, id: &str, use_parts: impl FnOnce(&[&[u8]]) -> T) -> T {
        use_parts(&[
            self.key.secret().as_bytes(),
            self.principal.as_str().as_bytes(),
            self.server.as_str().as_bytes(),
            &epoch.0.to_be_bytes(),
            id.as_bytes(),
        ])
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use mooring_session::names::SessionId;
    use mooring_session::rules::Ownership;

    use super::*;
    use mooring_peers::fleet::KeyRing;
    use mooring_protocol::envelope::Sender;
    use mooring_protocol::{Message, rewrite_down, rewrite_up};
    use mooring_settings::{Affinity, Concurrency, Continuity, LostStateNotice, OnUpstreamLoss};
    use mooring_upstream::SessionPolicy;

    fn session(id: &[u8], principal: &[u8]) -> Session {
        let principal = Principal::parse(principal).unwrap();
        Session::named("mcpgw:", SessionId::parse(id).unwrap(), principal)
    }

    fn server(id: &[u8]) -> Server {
        let carriage = SessionPolicy {
            affinity: Affinity::On,
            ownership: Ownership::Shared,
            concurrency: Concurrency::Serial,
            on_upstream_loss: OnUpstreamLoss::Reinitialize,
            lost_state_notice: LostStateNotice::Content,
            continuity: Continuity::None,
        };
        let id = ServerName::parse(id).unwrap();
        Server::new(id, Vec::new(), carriage, http::HeaderMap::new())
    }

    #[test]
    fn a_sealed_id_is_valid_only_in_its_scope() {
        let seals = Seals::new(Some(SealKey::new(&KeyRing::random())));
        let (mine, tools) = (session(b"a", b"ann"), server(b"tools"));
        let asked = br#"{"jsonrpc":"2.0","id":"\u0041","method":"elicitation/create"}"#;
        let asked = Message::parse(asked, Sender::Upstream).unwrap();
        let marker = seals.marker(&mine, &tools, Epoch(7));
        let down = rewrite_down(&asked, &marker).unwrap().text.into_owned();
        let id = Message::parse(down.as_bytes(), Sender::Upstream)
            .unwrap()
            .id()
            .unwrap();
        let answer = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{}}}}"#, id.as_json());
        let answer = Message::parse(answer.as_bytes(), Sender::Client).unwrap();
        let up = rewrite_up(&answer, None).unwrap();
        assert_eq!(up.text, r#"{"jsonrpc":"2.0","id":"\u0041","result":{}}"#);
        let given = up.refers_to.unwrap();
        assert!(seals.is_genuine(&mine, &tools, &given));
        assert!(!seals.is_genuine(&session(b"b", b"ann"), &tools, &given));
        assert!(!seals.is_genuine(&session(b"a", b"bob"), &tools, &given));
        assert!(!seals.is_genuine(&mine, &server(b"other"), &given));
        let forged = |change: fn(&mut ServerRequestId<'_>)| {
            let mut forged = given.clone();
            change(&mut forged);
            !seals.is_genuine(&mine, &tools, &forged)
        };
        assert!(forged(|id| id.epoch = Epoch(8)));
        assert!(forged(|id| id.id = "2".into()));
        assert!(forged(|id| id.seal = None));
        assert!(forged(|id| id.seal = Some(Seal(1))));
        assert!(Seals::default().is_genuine(&mine, &tools, &given));
    }
}
