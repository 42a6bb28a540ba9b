//! Stopping: what this worker owns is let go when it stops, after the calls under way have been answered.
//!
//! Invariants: as long as calls are under way the store counts this worker as alive, so that nobody takes their session over
//! and nobody cuts their replies; when a connection is closed here, the store has been told that this worker is gone, so
//! that the next message of its session finds it orphaned and not silently absent.

use std::sync::atomic::Ordering;

use futures_util::future::join_all;
use http::Method;
use tokio::time::Instant;

use super::Owned;
use mooring_protocol::header::LAST_EVENT_ID;
use mooring_protocol::{Kind, Message, Sender};
use mooring_upstream::Outgoing;

impl Owned {
    /// Begins nothing new any more; waits until `deadline` for the calls under way. What they need is served meanwhile:
    /// the client's answers, notifications, and resumes.
    pub async fn finish(&self, deadline: Instant) {
        self.is_stopping.store(true, Ordering::Release);
        let idle = async {
            for (_, held) in self.table.all() {
                held.connection.idle().await;
            }
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

    /// Whether this worker stops, and this message would begin something.
    pub(super) fn comes_too_late(&self, outgoing: &Outgoing) -> bool {
        self.is_stopping.load(Ordering::Acquire) && begins_something(outgoing)
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
