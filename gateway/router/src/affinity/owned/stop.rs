//! Stopping: what this worker owns is let go when it stops, after the calls under way have been answered.
//!
//! Invariants: as long as calls are under way the store counts this worker as alive, so that nobody takes their session over
//! and nobody cuts their replies; when a connection is closed here, the store has been told that this worker is gone, so
//! that the next message of its session finds it orphaned and not silently absent.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::join_all;
use http::Method;
use tokio::sync::watch;
use tokio::time::Instant;

use super::OwnedConnections;
use mooring_protocol::header::LAST_EVENT_ID;
use mooring_protocol::{Kind, Message, Sender};
use mooring_upstream::{Outgoing, SendError};

/// What may still begin at the connections that live here.
#[derive(Debug, Default)]
pub(super) struct OwnedAdmission {
    is_stopping: Mutex<bool>,
    /// Messages on their way to a connection, which does not count them yet.
    arriving: Gauge,
    /// Replies on their way to other workers.
    leaving: Gauge,
}

/// How many of something there are.
#[derive(Debug)]
struct Gauge(Arc<watch::Sender<usize>>);

/// One that a [`Gauge`] counts, until it is dropped.
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

    /// Waits until there are none.
    async fn none_left(&self) {
        // The sender lives as long as this does.
        let _ = self.0.subscribe().wait_for(|count| *count == 0).await;
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count = count.saturating_sub(1));
    }
}

impl OwnedAdmission {
    /// Lets a message through to a connection, unless it would begin something and this worker stops. Whoever waits for what
    /// is under way waits for the answer to be dropped.
    ///
    /// # Errors
    /// `OwnerDraining`. Nothing was delivered.
    pub(super) fn admit(&self, outgoing: &Outgoing) -> Result<Option<GaugeGuard>, SendError> {
        if !begins_something(outgoing) {
            return Ok(None);
        }
        // Under the lock, so that whatever was admitted before it is counted when this worker begins to stop.
        let is_stopping = self.is_stopping.lock();
        if *is_stopping.unwrap_or_else(PoisonError::into_inner) {
            return Err(SendError::OwnerDraining);
        }
        Ok(Some(self.arriving.count()))
    }

    /// The reply to a message of another worker is under way until the answer is dropped. None for a stream that answers
    /// nothing.
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
    /// Begins nothing new any more; waits until `deadline` for the calls under way. What they need is served meanwhile:
    /// the client's answers, notifications, and resumes.
    pub async fn finish(&self, deadline: Instant) {
        self.admission.refuse_from_now();
        let idle = async {
            self.admission.arriving.none_left().await;
            for (_, held) in self.table.all() {
                held.connection.idle().await;
            }
            // A worker that is gone is not listened to any more.
            self.admission.leaving.none_left().await;
        };
        // What is still under way then is cut.
        let _ = tokio::time::timeout_at(deadline, idle).await;
    }

    /// Closes everything, and returns when the servers have ended. The store knows that this worker is gone.
    pub async fn let_go(&self) {
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

    /// A connection counts a message when it has it; until then the worker must not count as idle.
    #[tokio::test]
    async fn a_message_that_was_admitted_is_waited_for_and_none_is_admitted_after_it() {
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
