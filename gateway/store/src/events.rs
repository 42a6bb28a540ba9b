//! The events of a worker, which spare it from polling the store.

use mooring_session::names::{ServerName, Token};

use super::key::SessionKey;

/// A way by which a worker's events arrive. One that breaks is replaced by another one, which is not equal to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventPath(pub(crate) u64);

impl EventPath {
    /// That of all events within this process. Other numbers are for connections, from 2 up.
    pub(crate) const IN_PROCESS: Self = Self(1);
}

/// One event for one worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkerEvent {
    /// A turn that the worker waits for is its own now. It has to renew or leave it within the grant's second.
    Turn {
        /// The session of the turn.
        key: SessionKey,
        /// At which server.
        server: ServerName,
        /// The ticket that entered the queue.
        ticket: Token,
        /// The turn's number: it fences the holder from every earlier one.
        turn: u64,
    },
    /// A ticket of the worker was removed from its queue: the call was cancelled.
    Withdrawn {
        /// Of which session.
        key: SessionKey,
        /// At which server.
        server: ServerName,
        /// The ticket that waited.
        ticket: Token,
    },
    /// A claim that the worker waits for has changed: the worker resolves again.
    Settled {
        /// Of which session.
        key: SessionKey,
        /// At which server.
        server: ServerName,
    },
}
