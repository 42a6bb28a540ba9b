//! Losses of an outage: upstream sessions that no record names any more.

use mooring_session::names::{InstanceName, ServerName, UpstreamSession};

use crate::key::SessionKey;

/// A binding that was made or used while the store was away, and that the store refused on its return. The gateway
/// deletes its upstream session, if any, and logs the loss.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// The session of the binding.
    pub key: SessionKey,
    /// The server of the binding.
    pub server: ServerName,
    /// The instance of the binding.
    pub instance: InstanceName,
    /// The upstream session to delete there.
    pub upstream_session: Option<UpstreamSession>,
    /// Why it was lost.
    pub reason: LossReason,
}

/// Why a binding was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display)]
#[strum(serialize_all = "snake_case")]
pub enum LossReason {
    /// The store has another binding, or the session ended or expired there. The store's state wins, and the state in
    /// the upstream session is lost.
    Overruled,
    /// The client ended the session while the store was away. Nothing is lost, but the upstream session has to be
    /// deleted.
    Ended,
}

/// A queue of losses. Each is returned once.
#[derive(Clone, Debug)]
pub struct Losses(Option<flume::Receiver<Loss>>);

impl Losses {
    pub(super) fn of(losses: flume::Receiver<Loss>) -> Self {
        Self(Some(losses))
    }

    /// For a store that has no losses.
    pub(crate) fn none() -> Self {
        Self(None)
    }

    /// Waits for the next loss; none if there cannot be another.
    pub async fn next(&self) -> Option<Loss> {
        self.0.as_ref()?.recv_async().await.ok()
    }
}
