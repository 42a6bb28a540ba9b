//! Reloading settings: how a reload is asked for, and what it reports. `serve/reload.rs` carries it out.
//!
//! Invariant: reloads run one after another, each over the settings that the one before left.

mod report;

use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

pub use self::report::{ReloadError, ReloadReport};

/// Most reloads that wait. A further one would do nothing that the last of them does not do.
const WAITING_MAX: usize = 16;

/// The result of a reload.
pub type ReloadResult = Result<ReloadReport, ReloadError>;

/// What a reload is asked for by.
#[derive(Debug)]
pub(crate) enum ReloadRequest {
    /// A signal: the report is logged.
    Signal,
    /// A caller that gets the report.
    Caller(oneshot::Sender<ReloadResult>),
    /// A caller that gets the report of a reload with these added servers, which is not made.
    Check(Vec<Value>, oneshot::Sender<ReloadResult>),
}

/// Asks for reloads of this gateway's settings. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ReloadHandle(mpsc::Sender<ReloadRequest>);

/// The requests for reloads, in their order.
#[derive(Debug)]
pub(crate) struct ReloadRequests(mpsc::Receiver<ReloadRequest>);

/// A way to ask for reloads, and where the requests arrive.
pub(crate) fn reload_channel() -> (ReloadHandle, ReloadRequests) {
    let (requests, arriving) = mpsc::channel(WAITING_MAX);
    (ReloadHandle(requests), ReloadRequests(arriving))
}

impl ReloadHandle {
    /// Reloads the settings, and returns when that is done.
    ///
    /// # Errors
    /// Nothing was changed.
    pub async fn reload(&self) -> ReloadResult {
        let (answer, answered) = oneshot::channel();
        let request = ReloadRequest::Caller(answer);
        self.0
            .send(request)
            .await
            .map_err(|_| ReloadError::Stopping)?;
        answered.await.unwrap_or(Err(ReloadError::Stopping))
    }

    /// What a reload would change with these servers in the place of those that operators have added.
    ///
    /// # Errors
    /// Why it would change nothing.
    pub(crate) async fn check(&self, added: Vec<Value>) -> ReloadResult {
        let (answer, answered) = oneshot::channel();
        let request = ReloadRequest::Check(added, answer);
        self.0
            .send(request)
            .await
            .map_err(|_| ReloadError::Stopping)?;
        answered.await.unwrap_or(Err(ReloadError::Stopping))
    }

    /// Asks for a reload whose report is logged.
    pub(crate) fn request(&self) {
        // If so many wait, one of them begins after the change that this one is for.
        let _ = self.0.try_send(ReloadRequest::Signal);
    }
}

impl ReloadRequests {
    /// The next request; none if nobody can ask any more.
    pub(crate) async fn next(&mut self) -> Option<ReloadRequest> {
        self.0.recv().await
    }
}
