//! Ends the sessions of a server that is no longer configured.
//!
//! Invariant: calls under way are waited for, as long as a stopping gateway would wait; afterwards nothing of the server's
//! sessions is left, in the store or upstream, except what an instance does not delete now, which the reaper retries.

use std::time::Duration;

use futures_util::stream::{self, StreamExt as _};
use mooring_session::Refusal;
use mooring_session::names::ServerName;
use mooring_session::record::SessionState;
use mooring_session::rules::{EndCondition, EndRequest, UnbindRequest};
use mooring_session::view::{BindingState, RecordView};
use tokio::time::{Instant, sleep};

use super::SessionRouter;
use mooring_store::{EndCause, Family, PAGE_MAX, Session, SessionKey, SessionQuery, StoreError};

/// Between two passes over the sessions that were in use.
const PASS_PAUSE: Duration = Duration::from_millis(500);
/// Most sessions that are ended at once.
const AT_ONCE: usize = 16;

/// What a pass over the sessions of a server has come to.
#[derive(Clone, Copy, Debug, Default)]
struct RemovalPass {
    ended: usize,
    /// Those that are still in use.
    in_use: usize,
}

/// What became of one session.
enum Removal {
    Ended,
    InUse,
    /// It had ended, or has no binding of the server any more.
    Absent,
}

impl SessionRouter {
    /// Ends the sessions of this server, and drops its bindings from those of groups and of code. Calls under way may take
    /// up to `patience`. Returns early if the server is configured again.
    pub async fn end_sessions_of(&self, server: &ServerName, patience: Duration) {
        let deadline = Instant::now() + patience;
        let mut ended = 0_usize;
        loop {
            if self.servers().get(server.as_str()).is_some() {
                return;
            }
            let when = match Instant::now() < deadline {
                true => EndCondition::Idle,
                false => EndCondition::Always,
            };
            match self.end_once(server, when).await {
                Ok(pass) => {
                    ended = ended.saturating_add(pass.ended);
                    if pass.in_use == 0 {
                        break;
                    }
                }
                Err(error) => {
                    tracing::info!(%server, %error, "sessions of a removed server could not be listed");
                }
            }
            if when == EndCondition::Always {
                break;
            }
            sleep(PASS_PAUSE).await;
        }
        tracing::info!(%server, sessions = ended, "ended the sessions of a removed server");
    }

    async fn end_once(
        &self,
        server: &ServerName,
        when: EndCondition,
    ) -> Result<RemovalPass, StoreError> {
        let mut pass = RemovalPass::default();
        let of_server = SessionQuery {
            id_pattern: Some(Session::id_pattern_of(server.as_str()).into()),
            ..SessionQuery::default()
        };
        let bound = |family| SessionQuery {
            family,
            server: Some(server.clone()),
            ..SessionQuery::default()
        };
        let queries = [of_server, bound(Family::Mcp), bound(Family::Code)];
        for query in queries {
            let mut query = SessionQuery {
                state: Some(SessionState::Active),
                count: PAGE_MAX,
                ..query
            };
            loop {
                let page = self.store().list(&query).await?;
                let removals = stream::iter(page.sessions)
                    .map(|(key, record)| self.remove_server_from(key, record, server, when))
                    .buffer_unordered(AT_ONCE)
                    .collect::<Vec<_>>();
                for removal in removals.await {
                    match removal {
                        Removal::Ended => pass.ended = pass.ended.saturating_add(1),
                        Removal::InUse => pass.in_use = pass.in_use.saturating_add(1),
                        Removal::Absent => {}
                    }
                }
                query.cursor = page.cursor;
                if query.cursor.is_none() {
                    break;
                }
            }
        }
        Ok(pass)
    }

    /// Ends a session of the server's own endpoint; of another one, only the binding ends.
    async fn remove_server_from(
        &self,
        key: SessionKey,
        record: RecordView,
        server: &ServerName,
        when: EndCondition,
    ) -> Removal {
        let is_called = || {
            let servers = record.bindings.iter().map(|binding| &binding.server);
            self.active_bindings().is_in_call(&key, servers.cloned())
        };
        if when == EndCondition::Idle && is_called() {
            return Removal::InUse;
        }
        self.delegations().recall(&key, server);
        let is_own = (key.id()).is_some_and(|id| Session::is_id_of(id, server.as_str()));
        match is_own {
            true => self.end_removed(&key, &record, when).await,
            false => self.unbind_removed(&key, &record, server).await,
        }
    }

    async fn end_removed(
        &self,
        key: &SessionKey,
        record: &RecordView,
        when: EndCondition,
    ) -> Removal {
        let request = EndRequest {
            principal: Some(record.principal.clone()),
            when,
        };
        match self.store().end(key, &request).await {
            Ok(ended) => {
                self.forget_session(key, &ended.record);
                if !ended.ended_now {
                    return Removal::Absent;
                }
                self.note_ended(&key.digest(), EndCause::ServerRemoved);
                self.clean_ended(key, &ended.record).await;
                Removal::Ended
            }
            Err(StoreError::Refused(Refusal::Busy(_))) => Removal::InUse,
            Err(_) => Removal::Absent,
        }
    }

    async fn unbind_removed(
        &self,
        key: &SessionKey,
        record: &RecordView,
        server: &ServerName,
    ) -> Removal {
        let mut bindings = record.bindings.iter();
        let binding = bindings.find(|binding| binding.server == *server);
        let Some(binding) = binding else {
            return Removal::Absent;
        };
        // The holder of a claim finds that its server is gone, and drops what it has made. A claim that a drain has left has
        // no holder, and lapses before the next pass.
        if binding.state == BindingState::Claimed {
            return Removal::InUse;
        }
        let request = UnbindRequest {
            principal: record.principal.clone(),
            server: server.clone(),
            epoch: binding.epoch,
            token: None,
        };
        if self.store().unbind(key, &request).await.is_err() {
            return Removal::Absent;
        }
        let unbound = RecordView {
            bindings: vec![binding.clone()],
            ..record.clone()
        };
        self.delete_all_held(key, &unbound).await;
        Removal::Ended
    }
}
