//! Stops this gateway's connections when it stops, after in-flight calls have been answered.
//!
//! Invariants: while calls are in flight the store counts this gateway as alive, so that no peer takes over their
//! sessions or cuts their replies; connections are closed only after this gateway is marked as gone in the store, so
//! that the next message of a session finds its binding orphaned.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::join_all;
use http::Method;
use tokio::sync::watch;
use tokio::time::Instant;

use super::OwnedConnections;
use mooring_protocol::header::LAST_EVENT_ID;
use mooring_protocol::{Kind, Message, Sender};
use mooring_upstream::{Outgoing, SendError};

/// Admits messages to the connections of this gateway, until it stops.
#[derive(Debug, Default)]
pub(super) struct OwnedAdmission {
    is_stopping: Mutex<bool>,
    /// Messages on the way to a connection, which does not count them yet.
    arriving: Gauge,
    /// Replies on the way to peers.
    leaving: Gauge,
}

/// A counter that can be awaited.
#[derive(Debug)]
struct Gauge(Arc<watch::Sender<usize>>);

/// Increments a [`Gauge`] until it is dropped.
#[derive(Debug)]
pub(super) struct GaugeGuard(Arc<watch::Sender<usize>>);

impl Default for Gauge {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(0)))
    }
}

impl Gauge {
    fn count(&self) -> GaugeGuard {
        self.0.send_modify(|count| *count = count.saturating_add(1));
        GaugeGuard(Arc::clone(&self.0))
    }

    /// Waits until the count is zero.
    async fn none_left(&self) {
        // The sender lives as long as `self`.
        let _ = self.0.subscribe().wait_for(|count| *count == 0).await;
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count = count.saturating_sub(1));
    }
}

impl OwnedAdmission {
    /// Admits a message to a connection, unless it begins a call and this gateway is stopping. The gateway waits for
    /// the returned guard.
    ///
    /// # Errors
    /// `OwnerDraining`. Nothing was delivered.
    pub(super) fn admit(&self, outgoing: &Outgoing) -> Result<Option<GaugeGuard>, SendError> {
        if !begins_something(outgoing) {
            return Ok(None);
        }
        // Under the lock, so that everything admitted earlier is counted when the stop begins.
        let is_stopping = self.is_stopping.lock();
        if *is_stopping.unwrap_or_else(PoisonError::into_inner) {
            return Err(SendError::OwnerDraining);
        }
        Ok(Some(self.arriving.count()))
    }

    /// Counts a reply to a peer until the guard is dropped. `None` for a stream without an unanswered call.
    pub(super) fn reply_leaves(&self, outgoing: &Outgoing) -> Option<GaugeGuard> {
        (*outgoing.method() == Method::POST).then(|| self.leaving.count())
    }

    fn refuse_from_now(&self) {
        let mut is_stopping = self
            .is_stopping
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *is_stopping = true;
    }
}

impl OwnedConnections {
    /// Refuses new calls, and waits until `deadline` for those in flight. Messages that they need are still served: the
    /// client's answers, notifications and resumes.
    pub async fn finish(&self, deadline: Instant) {
        self.admission.refuse_from_now();
        let idle = async {
            self.admission.arriving.none_left().await;
            for (_, held) in self.table.all() {
                held.connection.idle().await;
            }
            // Peers no longer listen to a gateway that is gone.
            self.admission.leaving.none_left().await;
        };
        // Calls that are still in flight then are cut off.
        let _ = tokio::time::timeout_at(deadline, idle).await;
    }

    /// Closes all connections and returns when their servers have ended. The store already knows that this gateway is
    /// gone.
    pub async fn close_all(&self) {
        let held = self.table.all();
        for (place, held) in &held {
            self.close(place, held.epoch);
        }
        join_all(held.iter().map(|(_, held)| held.connection.gone())).await;
    }
}

fn begins_something(outgoing: &Outgoing) -> bool {
    match *outgoing.method() {
        Method::POST => Message::parse(outgoing.body(), Sender::Gateway)
            .is_ok_and(|message| message.kind() == Kind::Request),
        Method::GET => !outgoing.headers().contains_key(LAST_EVENT_ID),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use bytes::Bytes;
    use futures_util::FutureExt;
    use http::HeaderMap;

    use super::*;

    fn posted(text: &'static str) -> Outgoing {
        let body = Bytes::from_static(text.as_bytes());
        Outgoing::forwarded(Method::POST, HeaderMap::new(), body)
    }

    /// A connection counts a message only once it has it; until then the gateway must not count as idle.
    #[tokio::test]
    async fn admitted_messages_are_awaited_and_later_ones_refused() {
        let admission = OwnedAdmission::default();
        let call = posted(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call"}"#);
        let answer = posted(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
        let arriving = admission.admit(&call).unwrap();
        let leaving = admission.reply_leaves(&call);
        admission.refuse_from_now();
        assert!(matches!(
            admission.admit(&call),
            Err(SendError::OwnerDraining)
        ));
        assert!(
            admission.admit(&answer).unwrap().is_none(),
            "what is under way needs it"
        );
        for (gauge, counted) in [
            (&admission.arriving, arriving),
            (&admission.leaving, leaving),
        ] {
            assert!(gauge.none_left().now_or_never().is_none());
            drop(counted);
            assert!(gauge.none_left().now_or_never().is_some());
        }
    }
}
