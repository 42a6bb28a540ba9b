//! What an outage cost: upstream sessions that no record names any more.

use mooring_session::names::{InstanceName, ServerName, UpstreamSession};

use crate::key::SessionKey;

/// One binding that was made or answered for while the store was away, and that the store refused on its return.
/// The gateway deletes the upstream session where there is one, and logs what was lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Whose binding it was.
    pub key: SessionKey,
    /// The server it was for.
    pub server: ServerName,
    /// Where it was.
    pub instance: InstanceName,
    /// What is to be deleted there.
    pub upstream_session: Option<UpstreamSession>,
    /// Why it was lost.
    pub reason: LossReason,
}

/// Why a binding was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display)]
#[strum(serialize_all = "snake_case")]
pub enum LossReason {
    /// The store holds another binding, or the session ended or expired there: the server's answer wins, and what the
    /// upstream session held is lost.
    Overruled,
    /// The session's client ended it while the store was away. Nothing is lost; only the clean-up was left.
    Ended,
}

/// The losses, as they become known. Each is given out once.
#[derive(Clone, Debug)]
pub struct Losses(Option<flume::Receiver<Loss>>);

impl Losses {
    pub(super) fn of(losses: flume::Receiver<Loss>) -> Self {
        Self(Some(losses))
    }

    /// Of a store that loses nothing.
    pub(crate) fn none() -> Self {
        Self(None)
    }

    /// Waits for the next loss; none where there will never be another.
    pub async fn next(&self) -> Option<Loss> {
        self.0.as_ref()?.recv_async().await.ok()
    }
}
