//! Requests that are waited for only as long as their server usually needs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use mooring_session::rules::Ownership;

use super::Server;
use mooring_usage::{MemoryShare, for_same_user};

impl Server {
    /// Makes a request to this server in a task, and waits for its outcome for `limit`, or briefly if the server did not
    /// answer lately. None without an outcome in time; the task continues, so that no binding is left half made.
    /// `is_answer` says whether an outcome shows that the server answers.
    ///
    /// The answer may wait for room in `memory`, which does not count as lateness of the server.
    pub async fn answer_in_time<T: Send + 'static>(
        self: &Arc<Self>,
        limit: Duration,
        memory: Option<&MemoryShare>,
        request: impl Future<Output = T> + Send + 'static,
        is_answer: impl FnOnce(&T) -> bool + Send + 'static,
    ) -> Option<T> {
        let begun = Instant::now();
        // The lateness of one session's process does not indicate that of others.
        let is_shared = self.ownership != Ownership::Owned;
        let wait = match is_shared {
            true => self.lateness.wait(limit, begun),
            false => limit,
        };
        let server = Arc::clone(self);
        let task = tokio::spawn(for_same_user(async move {
            let outcome = request.await;
            // A later answer would only have the next caller wait in vain.
            if begun.elapsed() <= limit && is_answer(&outcome) {
                server.lateness.note_answer();
            }
            outcome
        }));
        match tokio::time::timeout(wait, task).await {
            Ok(outcome) => outcome.ok(),
            Err(_) => {
                let is_awaited = memory.is_some_and(|share| share.awaited().is_some());
                if is_shared && !is_awaited {
                    self.lateness.note_late(Instant::now());
                }
                None
            }
        }
    }
}
