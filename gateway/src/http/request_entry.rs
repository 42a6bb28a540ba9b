//! What is known of one request, from its arrival to the last byte of its reply: for metrics.
//!
//! Invariant: an entry ends once, with its reply, also if the client leaves before.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use mooring_metrics::ExchangeTimer;
use mooring_protocol::{CompleteWith, Kind, Message, Reply, ReplySummary};
use mooring_upstream::exchange_outcome;

/// One request. Shared by all that serve it.
#[derive(Debug)]
pub(super) struct RequestEntry {
    arrived: Instant,
    facts: Mutex<RequestFacts>,
}

/// What is known of it so far.
#[derive(Debug, Default)]
struct RequestFacts {
    /// Measures a message for a server.
    timer: Option<ExchangeTimer>,
    /// Whether it is a request, whose reply is complete with the response.
    expects_response: bool,
}

impl RequestEntry {
    /// The entry of a request that arrives now.
    pub(super) fn begin() -> Arc<Self> {
        Arc::new(Self {
            arrived: Instant::now(),
            facts: Mutex::default(),
        })
    }

    /// It is this message, for this server.
    pub(super) fn note_message(&self, server: &str, message: &Message<'_>) {
        let method = message.method().label();
        let timer = ExchangeTimer::of_request(server, method, self.arrived);
        let mut facts = self.facts();
        facts.timer = Some(timer);
        facts.expects_response = message.kind() == Kind::Request;
    }

    /// Its reply, which ends it.
    pub(super) fn watch(self: Arc<Self>, reply: Reply) -> Reply {
        let complete_with = match self.facts().expects_response {
            true => CompleteWith::Response,
            false => CompleteWith::End,
        };
        reply.watched(complete_with, move |summary| self.end(summary))
    }

    fn end(&self, reply: &ReplySummary) {
        let timer = self.facts().timer.take();
        if let Some(timer) = timer {
            let status = reply.status.as_u16();
            timer.end(reply.first_byte_at, status, exchange_outcome(reply));
        }
    }

    fn facts(&self) -> MutexGuard<'_, RequestFacts> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
