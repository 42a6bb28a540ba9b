//! In-flight requests to the server.
//!
//! Invariants: ids are unique; a request stays until it is answered, or until [`CANCELLED_FOR`] after the client
//! cancelled it; there are never more than `max`.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use super::key::{Key, KeyRejection};
use super::outbox::End;
use super::route;
use super::stream::Stream;
use mooring_protocol::{Method, RequestOrigin};

/// How long the stream of a cancelled request stays open for an answer that crossed the cancellation. Most servers no
/// longer answer, and the calls queued behind this one wait for it.
pub(super) const CANCELLED_FOR: Duration = Duration::from_secs(1);

/// One in-flight request.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) method: Method,
    /// The stream for its messages and its answer.
    pub(super) stream: Stream,
    number: u64,
    token: Option<Key>,
    is_clients: bool,
    cancelled_until: Option<Instant>,
}

/// All in-flight requests.
#[derive(Debug)]
pub(super) struct InFlightCalls {
    open: HashMap<Key, Call>,
    begun: u64,
    max: usize,
}

impl InFlightCalls {
    pub(super) fn new(max: usize) -> Self {
        Self {
            open: HashMap::new(),
            begun: 0,
            max,
        }
    }

    /// Whether a request with this id is accepted.
    pub(super) fn check(&self, key: &Key) -> Result<(), KeyRejection> {
        key.check_among(&self.open, self.max)
    }

    /// Records an accepted request. `token` is its progress token.
    pub(super) fn begin(&mut self, key: Key, method: Method, token: Option<Key>, stream: Stream) {
        self.begun = self.begun.saturating_add(1);
        let call = Call {
            method,
            stream,
            number: self.begun,
            token,
            is_clients: key.is_clients(),
            cancelled_until: None,
        };
        self.open.insert(key, call);
    }

    /// Removes a request that was answered.
    pub(super) fn finish(&mut self, key: &Key) -> Option<Call> {
        self.open.remove(key)
    }

    /// The newest request that its client knows by this id and has not cancelled.
    pub(super) fn find_clients(&self, id_json: &str) -> Option<&Key> {
        let is_named = |key: &Key| match key.origin() {
            RequestOrigin::Client { id, .. } => *id == *id_json,
            _ => false,
        };
        let named = self.open.iter();
        named
            .filter(|(key, call)| call.cancelled_until.is_none() && is_named(key))
            .max_by_key(|(_, call)| call.number)
            .map(|(key, _)| key)
    }

    /// Records that the client no longer waits for the answer.
    pub(super) fn cancel(&mut self, key: &Key, now: Instant) {
        if let Some(call) = self.open.get_mut(key) {
            call.cancelled_until
                .get_or_insert_with(|| now + CANCELLED_FOR);
        }
    }

    /// Removes the requests whose grace after cancellation is over.
    pub(super) fn expired(&mut self, now: Instant) -> Vec<Call> {
        let is_over = |call: &Call| call.cancelled_until.is_some_and(|until| until <= now);
        self.open
            .extract_if(|_, call| is_over(call))
            .map(|(_, call)| call)
            .collect()
    }

    /// The next time at which one expires.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.open
            .values()
            .filter_map(|call| call.cancelled_until)
            .min()
    }

    /// The stream of the request with this id.
    pub(super) fn stream_mut(&mut self, key: &Key) -> Option<&mut Stream> {
        self.open.get_mut(key).map(|call| &mut call.stream)
    }

    /// The stream of the request with this number; `None` once it is answered.
    pub(super) fn with_number(&self, number: u64) -> Option<&Stream> {
        self.open
            .values()
            .find(|call| call.number == number)
            .map(|call| &call.stream)
    }

    /// The stream of the request with this progress token.
    pub(super) fn with_progress_token(&self, token: &Key) -> Option<&Stream> {
        self.open
            .values()
            .find(|call| call.token.as_ref() == Some(token))
            .map(|call| &call.stream)
    }

    /// The number of the client's request that most likely caused a message which names no request.
    pub(super) fn cause(&self) -> Option<u64> {
        let calls = self.open.values().filter(|call| {
            call.is_clients && call.cancelled_until.is_none() && call.stream.is_reachable()
        });
        route::cause(calls.map(|call| (call.number, call.method)))
    }

    /// The number of unanswered requests of the client.
    pub(super) fn client_calls(&self) -> usize {
        self.open
            .values()
            .filter(|call| call.is_clients && call.cancelled_until.is_none())
            .count()
    }

    /// The stream with the most unread, by this measure.
    pub(super) fn slowest(&mut self, measure: impl Fn(&Stream) -> usize) -> Option<&mut Stream> {
        self.open
            .values_mut()
            .map(|call| &mut call.stream)
            .max_by_key(|stream| measure(stream))
    }

    /// Ends all streams.
    pub(super) fn end(&mut self, end: &End) {
        for (_, mut call) in self.open.drain() {
            call.stream.end(end.clone());
        }
    }
}
