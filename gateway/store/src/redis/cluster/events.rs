//! Waits for the events of a worker at every primary.
//!
//! Invariants: an event that a primary delivered reaches a caller, because the wait at each goes on in a task of its own and
//! the next caller takes its result. Events can arrive only while they can at every primary: a session may be at any of
//! them, and a worker that cannot be told of one session must not rely on being told.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use mooring_session::names::WorkerId;
use tokio::time::Instant;

use super::super::events::new_path;
use super::node::Node;
use super::{Cluster, Shared};
use crate::error::{StoreError, UnavailableReason};
use crate::events::{EventPath, WorkerEvent};
use crate::lock::lock;

/// A wait with less time than this left is not begun again.
const WORTH_WAITING: Duration = Duration::from_millis(10);

/// The paths of one worker, one at each primary, and what they are called together.
#[derive(Debug)]
pub(super) struct JoinedPath {
    worker: WorkerId,
    parts: Vec<EventPath>,
    path: EventPath,
}

impl Cluster {
    pub(in super::super) async fn wait_for_events(
        &self,
        worker: &WorkerId,
        timeout: Duration,
    ) -> Result<Vec<WorkerEvent>, StoreError> {
        let mut nodes_changed = self.shared.nodes_changed.subscribe();
        let topology = self.shared.topology();
        let deadline = Instant::now() + timeout;
        if topology.nodes.is_empty() {
            // Until there are some.
            return match tokio::time::timeout(timeout, nodes_changed.changed()).await {
                Ok(Ok(())) => Ok(Vec::new()),
                _ => Err(StoreError::Away(UnavailableReason::Disconnected)),
            };
        }
        let waits = topology
            .nodes
            .iter()
            .map(|node| wait_at(node, worker, deadline));
        let mut waits: FuturesUnordered<_> = waits.collect();
        let mut result = None;
        loop {
            tokio::select! {
                biased;
                waited = waits.next() => match waited {
                    Some(Ok(events)) if !events.is_empty() => return Ok(events),
                    Some(Ok(events)) => result = Some(Ok(events)),
                    Some(Err(error)) => {
                        result.get_or_insert(Err(error));
                    }
                    None => return result.unwrap_or_else(|| Ok(Vec::new())),
                },
                // The caller waits again, at the nodes that there are then.
                _ = nodes_changed.changed() => return Ok(Vec::new()),
            }
        }
    }

    pub(in super::super) fn event_path(&self, worker: &WorkerId) -> Option<EventPath> {
        self.shared.event_path(worker)
    }
}

impl Shared {
    fn event_path(&self, worker: &WorkerId) -> Option<EventPath> {
        let topology = self.topology();
        let parts = topology.nodes.iter().map(|node| node.events.path(worker));
        let parts: Vec<EventPath> = parts.collect::<Option<_>>()?;
        if parts.is_empty() {
            return None;
        }
        let mut known = lock(&self.paths);
        // One, unless one process runs several workers.
        match known.iter_mut().find(|joined| joined.worker == *worker) {
            Some(joined) if joined.parts == parts => Some(joined.path),
            Some(joined) => {
                joined.parts = parts;
                joined.path = new_path();
                Some(joined.path)
            }
            None => {
                let path = new_path();
                known.push(JoinedPath {
                    worker: worker.clone(),
                    parts,
                    path,
                });
                Some(path)
            }
        }
    }
}

/// Waits at one primary until there are events or the time is over, also where it is away for a while.
async fn wait_at(
    node: &Arc<Node>,
    worker: &WorkerId,
    deadline: Instant,
) -> Result<Vec<WorkerEvent>, StoreError> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let waited = node.events.wait(worker, left).await;
        let has_events = matches!(&waited, Ok(events) if !events.is_empty());
        if has_events || Instant::now() + WORTH_WAITING >= deadline {
            return waited;
        }
    }
}
