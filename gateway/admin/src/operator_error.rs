//! Why a function for operators has no result.

use mooring_router::affinity::MoveError;
use mooring_settings::Right;
use mooring_store::{DesiredStateError, StoreError};

use super::sessions::{FilterError, SessionFindError};

/// Why a read or an act was refused or failed.
#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    /// The caller lacks the right.
    #[error("this needs the right {}, or admin", .0.name())]
    Forbidden(Right),
    /// No session has this digest or place.
    #[error("there is no such session")]
    SessionNotFound,
    /// Several sessions have digests that begin so.
    #[error("several sessions are named so; give more digits, or the place")]
    SeveralSessions,
    /// The store's session index is not complete yet.
    #[error("the store is still looking through its sessions; ask again in a moment")]
    Incomplete,
    /// A session is not named in a form that can be looked for.
    #[error("{0}")]
    SessionName(String),
    /// No server has this id.
    #[error("there is no server of this id")]
    ServerNotFound,
    /// The server has no such instance.
    #[error("the server has no such instance")]
    InstanceNotFound,
    /// No gateway has this id or name.
    #[error("there is no gateway of this id or name")]
    WorkerNotFound,
    /// The session is bound at several servers, and none was named.
    #[error("the session is bound at several servers: name one")]
    SeveralServers,
    /// A session was not moved.
    #[error(transparent)]
    Move(#[from] MoveError),
    /// What is wanted of the fleet was not changed.
    #[error(transparent)]
    Desired(#[from] DesiredStateError),
    /// The filter is invalid.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// The store failed.
    #[error("the session store is not available")]
    Store(#[source] StoreError),
}

impl From<StoreError> for OperatorError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<SessionFindError> for OperatorError {
    fn from(error: SessionFindError) -> Self {
        match error {
            SessionFindError::Name(text) => Self::SessionName(text),
            SessionFindError::NoSuchSession => Self::SessionNotFound,
            SessionFindError::SeveralSessions => Self::SeveralSessions,
            SessionFindError::Incomplete => Self::Incomplete,
            SessionFindError::Store(error) => Self::Store(error),
        }
    }
}
