//! The router's functions for code and agent servers, as their trait.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use mooring_session::names::{ServerName, WorkerId};
use mooring_session::view::RecordView;

use super::{InFlightKind, Session, SessionRouter, TurnError};
use mooring_store::{DropGuard, SessionAccess, SessionKey, SessionTurn, Store};

impl SessionAccess for SessionRouter {
    fn store(&self) -> &Store {
        self.store()
    }

    fn worker(&self) -> &WorkerId {
        self.worker()
    }

    fn begin_call(&self, session: &Session, server: &ServerName) -> DropGuard {
        Box::new(
            self.active_bindings()
                .begin(session, server, InFlightKind::Call),
        )
    }

    fn take_turn<'a>(
        &'a self,
        session: &'a Session,
        server: &'a ServerName,
        wait_max: Duration,
    ) -> BoxFuture<'a, Result<SessionTurn, TurnError>> {
        let taking = self.take_turn(&session.key, &session.principal, server, wait_max);
        let held = taking.map(|taken| {
            taken.map(|turn| SessionTurn {
                number: turn.number(),
                guard: Box::new(turn),
            })
        });
        held.boxed()
    }

    fn delete_held<'a>(
        &'a self,
        key: &'a SessionKey,
        record: &'a RecordView,
    ) -> BoxFuture<'a, bool> {
        self.delete_all_held(key, record).boxed()
    }
}
