//! The running runs of this gateway, by request.
//!
//! Invariant: a run is registered exactly as long as it is running.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// Identifies a request: client and request id.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RequestName {
    /// The client's session id.
    pub client: Box<str>,
    /// The request's id, as JSON text.
    pub id_json: Box<str>,
}

/// The token that stops each run.
type Stops = Mutex<HashMap<RequestName, CancellationToken>>;

/// The running runs. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct RunRegistry {
    by_request: Arc<Stops>,
    all: CancellationToken,
    running: TaskTracker,
}

/// One registered run; dropping it removes the run.
#[derive(Debug)]
pub(super) struct Run {
    /// Cancelled to stop the run.
    pub(super) stop: CancellationToken,
    of: Option<(Arc<Stops>, RequestName)>,
    _running: TaskTrackerToken,
}

impl RunRegistry {
    /// Registers a run.
    pub(super) fn begin(&self, request: Option<RequestName>) -> Run {
        let stop = self.all.child_token();
        let of = request.map(|request| {
            lock(&self.by_request).insert(request.clone(), stop.clone());
            (Arc::clone(&self.by_request), request)
        });
        Run {
            stop,
            of,
            _running: self.running.token(),
        }
    }

    /// Stops the run of a request.
    pub(super) fn stop(&self, request: &RequestName) {
        if let Some(stop) = lock(&self.by_request).get(request) {
            stop.cancel();
        }
    }

    /// Stops all runs, and those that begin later.
    pub(super) fn stop_all(&self) {
        self.all.cancel();
    }

    /// Returns when no run is registered.
    pub(super) async fn idle(&self) {
        // Only a closed one can be waited for. It registers runs all the same.
        self.running.close();
        self.running.wait().await;
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if let Some((by_request, request)) = &self.of {
            lock(by_request).remove(request);
        }
    }
}

fn lock(runs: &Stops) -> MutexGuard<'_, HashMap<RequestName, CancellationToken>> {
    // Every statement leaves the map consistent, so the guard of a poisoned lock is safe to use.
    runs.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn request(client: &str) -> Option<RequestName> {
        Some(RequestName {
            client: client.into(),
            id_json: "1".into(),
        })
    }

    #[test]
    fn a_client_ends_its_own_runs_alone() {
        let running = RunRegistry::default();
        let (ada, bob) = (running.begin(request("ada")), running.begin(request("bob")));
        running.stop(&request("ada").unwrap_or_else(|| unreachable!()));
        assert!(ada.stop.is_cancelled());
        assert!(!bob.stop.is_cancelled());
        drop((ada, bob));
        assert!(lock(&running.by_request).is_empty());
    }

    #[test]
    fn when_the_gateway_stops_all_of_them_end() {
        let running = RunRegistry::default();
        let run = running.begin(None);
        running.stop_all();
        assert!(run.stop.is_cancelled());
        assert!(running.begin(None).stop.is_cancelled());
    }

    #[tokio::test]
    async fn it_is_idle_when_the_last_of_them_is_over() {
        let running = RunRegistry::default();
        let (one, other) = (running.begin(None), running.begin(None));
        let mut idle = std::pin::pin!(running.idle());
        drop(one);
        assert!(idle.as_mut().now_or_never().is_none());
        drop(other);
        idle.await;
    }
}
