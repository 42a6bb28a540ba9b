//! The part of the session router that code and agent servers, which a gateway runs itself, use.
//!
//! Invariant: they see nothing else of it: no binding, no upstream connection and no reply.

use std::any::Any;
use std::fmt;
use std::time::Duration;

use futures_util::future::BoxFuture;
use mooring_session::names::{NameError, ServerName, WorkerId};
use mooring_session::view::RecordView;

use super::Store;
use crate::error::StoreError;
use crate::key::SessionKey;
use crate::session::Session;
use crate::turns::TurnHolder;

/// A guard: dropping it ends the registration or lock.
pub type DropGuard = Box<dyn Any + Send + Sync>;

/// The sessions of a fleet, as one gateway uses them.
pub trait SessionAccess: fmt::Debug + Send + Sync {
    /// Where records are stored.
    fn store(&self) -> &Store;

    /// This gateway.
    fn worker(&self) -> &WorkerId;

    /// Begins a call: until the guard is dropped, the session does not expire.
    fn begin_call(&self, session: &Session, server: &ServerName) -> DropGuard;

    /// Waits for the session's turn at a server, for `wait_max` at most. The future may be dropped at any moment.
    ///
    /// # Errors
    /// See [`TurnError`].
    fn take_turn<'a>(
        &'a self,
        session: &'a Session,
        server: &'a ServerName,
        wait_max: Duration,
    ) -> BoxFuture<'a, Result<SessionTurn, TurnError>>;

    /// Deletes the upstream resources of an ended or expired session's bindings. False if something is left.
    fn delete_held<'a>(
        &'a self,
        key: &'a SessionKey,
        record: &'a RecordView,
    ) -> BoxFuture<'a, bool>;
}

/// A session's turn at a server. Dropping it releases the turn.
pub struct SessionTurn {
    /// The turn's number, which only grows; none if it was given while the store was away.
    pub number: Option<u64>,
    /// Keeps the turn.
    pub guard: DropGuard,
}

/// Why a call did not get its turn.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TurnError {
    /// Others had it for as long as the caller would wait.
    #[error("the session's turn did not come in time")]
    Busy {
        /// Who has it, where the store knows.
        holder: Option<TurnHolder>,
    },
    /// As many wait for it as may.
    #[error("too many calls wait for the session's turn")]
    TooMany,
    /// The call was cancelled before it began.
    #[error("the call was withdrawn while it waited for the session's turn")]
    Withdrawn,
    /// The store refused, or is unavailable.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A name of the gateway's own making was refused, which would be a defect.
    #[error(transparent)]
    Name(#[from] NameError),
}
