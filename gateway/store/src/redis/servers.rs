//! Where commands go: to one server, or to the primaries of a cluster.
//!
//! A command with a key has it as its first argument. A keyless one acts on the data of the server that it is sent to, so
//! it goes to every primary, and its caller merges their replies. Futures of a cluster are boxed: those of a call are
//! nested, and a thread that serves has a stack of two megabytes.

use std::sync::Arc;
use std::time::Duration;

use mooring_session::names::WorkerId;
use redis::{Cmd, Value};
use tokio::sync::watch;

use super::cluster::Cluster;
use super::command_connection::{CommandConnection, ReplyCallback};
use super::events::EventConnections;
use super::failure::accepted;
use super::link::Link;
use super::link_state::{LinkState, Resend};
use crate::error::{StoreError, UnavailableReason};
use crate::events::{EventPath, WorkerEvent};
use crate::status::RedisServerView;

/// The servers of a store.
#[derive(Debug)]
pub(super) enum Servers {
    /// One serves every key.
    One(SingleServer),
    /// Each primary serves its part of the keys.
    Cluster(Cluster),
}

/// One server, with the connections to it.
#[derive(Debug)]
pub(super) struct SingleServer {
    pub(super) link: Arc<Link>,
    pub(super) events: EventConnections,
}

impl Servers {
    /// What the URL names, without credentials.
    pub(super) fn address(&self) -> &str {
        match self {
            Self::One(one) => one.link.address(),
            Self::Cluster(cluster) => cluster.address(),
        }
    }

    /// The server in use, or the primaries.
    pub(super) fn view(&self) -> RedisServerView {
        match self {
            Self::One(one) => one.link.server(),
            Self::Cluster(cluster) => cluster.view(),
        }
    }

    /// Whether there is a connection, of a cluster to any primary, with every change.
    pub(super) fn watch(&self) -> watch::Receiver<LinkState> {
        match self {
            Self::One(one) => one.link.watch(),
            Self::Cluster(cluster) => cluster.watch(),
        }
    }

    /// How long a command may take.
    pub(super) fn command_timeout(&self) -> Duration {
        match self {
            Self::One(one) => one.link.command_timeout(),
            Self::Cluster(cluster) => cluster.command_timeout(),
        }
    }

    /// The primaries, where commands with several keys are sent key by key.
    pub(super) const fn cluster(&self) -> Option<&Cluster> {
        match self {
            Self::One(_) => None,
            Self::Cluster(cluster) => Some(cluster),
        }
    }

    /// The number of the connection that serves this key; 0 without one.
    pub(super) fn connection_number(&self, key: &str) -> u64 {
        match self {
            Self::One(one) => one.link.number(),
            Self::Cluster(cluster) => cluster.connection_number(key),
        }
    }

    /// Sends a command with a key and waits for its reply, at most for the command timeout. An error from the server is a
    /// reply.
    pub(super) async fn send(&self, command: &Cmd, resend: Resend) -> Result<Value, StoreError> {
        match self {
            Self::One(one) => one.link.send(command, resend).await,
            Self::Cluster(cluster) => Box::pin(cluster.send(command, resend)).await,
        }
    }

    /// Sends a keyless command to every primary at the same time.
    pub(super) async fn send_to_all(&self, command: &Cmd, resend: Resend) -> NodeReplies {
        NodeReplies(match self {
            Self::One(one) => vec![one.link.send(command, resend).await],
            Self::Cluster(cluster) => Box::pin(cluster.send_to_all(command, resend)).await,
        })
    }

    /// Sends a command with a key whose reply no caller waits for, if there is a connection.
    pub(super) fn send_unawaited(&self, command: &Cmd, on_reply: ReplyCallback) {
        match self {
            Self::One(one) => one.link.send_unawaited(command, on_reply),
            Self::Cluster(cluster) => cluster.send_unawaited(command, on_reply),
        }
    }

    /// A connection to the server of this key that no other command shares, for those that mean something only together. It
    /// is closed when it is dropped.
    pub(super) async fn dial_separate(&self, key: &str) -> Result<CommandConnection, StoreError> {
        match self {
            Self::One(one) => one.link.dial_separate().await,
            Self::Cluster(cluster) => Box::pin(cluster.dial_separate(key)).await,
        }
    }

    pub(super) async fn wait_for_events(
        &self,
        worker: &WorkerId,
        timeout: Duration,
    ) -> Result<Vec<WorkerEvent>, StoreError> {
        match self {
            Self::One(one) => one.events.wait(worker, timeout).await,
            Self::Cluster(cluster) => Box::pin(cluster.wait_for_events(worker, timeout)).await,
        }
    }

    /// The way by which this worker's events arrive, while they do.
    pub(super) fn event_path(&self, worker: &WorkerId) -> Option<EventPath> {
        match self {
            Self::One(one) => one.events.path(worker),
            Self::Cluster(cluster) => cluster.event_path(worker),
        }
    }
}

/// What the primaries reply to a keyless command, one each.
#[derive(Debug)]
pub(super) struct NodeReplies(Vec<Result<Value, StoreError>>);

impl NodeReplies {
    /// The replies of all.
    ///
    /// # Errors
    /// One of them has none. A refusal comes before any other error.
    pub(super) fn all(self, command: &'static str) -> Result<Vec<Value>, StoreError> {
        let (replies, mut errors) = self.split(command);
        let refused = errors
            .iter()
            .position(|error| matches!(error, StoreError::Refused(_)));
        match errors.is_empty() {
            true => Ok(replies),
            false => Err(errors.swap_remove(refused.unwrap_or(0))),
        }
    }

    /// The replies of those that have one, and whether all have.
    ///
    /// # Errors
    /// None of them has one.
    pub(super) fn some(self, command: &'static str) -> Result<(Vec<Value>, bool), StoreError> {
        let (replies, errors) = self.split(command);
        match errors.into_iter().next() {
            Some(error) if replies.is_empty() => Err(error),
            error => Ok((replies, error.is_none())),
        }
    }

    /// The replies, and the errors; never none of both.
    fn split(self, command: &'static str) -> (Vec<Value>, Vec<StoreError>) {
        let (mut replies, mut errors) = (Vec::new(), Vec::new());
        for reply in self.0 {
            match reply.and_then(|value| accepted(value, command)) {
                Ok(value) => replies.push(value),
                Err(error) => errors.push(error),
            }
        }
        if replies.is_empty() && errors.is_empty() {
            errors.push(StoreError::Away(UnavailableReason::Disconnected));
        }
        (replies, errors)
    }
}
