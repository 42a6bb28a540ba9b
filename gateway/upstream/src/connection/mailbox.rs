//! What a connection and its actor task tell each other: commands in, the published state out.

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::activity::{Activity, IdleLimits, StoppedServer};
use super::link::LinkEnd;
use super::sending::ReplyTo;

/// Inputs of an actor, besides its link.
#[derive(Debug)]
pub(super) struct Mailbox {
    /// Closed when the last [`super::Connection`] is dropped.
    pub(super) commands: mpsc::Receiver<Command>,
    /// Cancelled to close the connection.
    pub(super) closing: CancellationToken,
}

/// A command to the actor.
#[derive(Debug)]
pub(super) enum Command {
    /// Serve a client's request.
    Serve {
        /// The request.
        request: ConnectionRequest,
        /// Where the reply goes.
        reply: ReplyTo,
    },
    /// Stop the server if it is idle.
    StopIfIdle {
        /// Minimum idle times.
        limits: IdleLimits,
        /// The server, if it was stopped.
        reply: oneshot::Sender<Option<StoppedServer>>,
    },
}

/// The published state of a connection.
#[derive(Debug)]
pub(super) struct StatusSenders {
    /// The number of unanswered client requests.
    pub(super) calls_open: watch::Sender<usize>,
    /// Whether the server is in use.
    pub(super) activity: watch::Sender<Activity>,
    /// Why the connection has ended.
    pub(super) end: watch::Sender<Option<LinkEnd>>,
}

/// A client's request to a connection.
#[derive(Debug)]
pub(super) enum ConnectionRequest {
    /// POST of a message.
    Post(Bytes),
    /// GET of a stream: the general stream, or a resume after an event.
    Listen {
        /// The id of the last event that the client has seen.
        after: Option<Box<str>>,
    },
}
