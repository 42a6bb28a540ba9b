//! The requests in flight to the server.
//!
//! Invariants: no two have the same id; each is there until it is answered, or until some time after the client cancelled
//! it; there are never more than `max`.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use super::key::Key;
use super::outbox::End;
use super::route;
use super::stream::Stream;
use mooring_protocol::Method;

/// How long the stream of a cancelled request stays open for an answer that the server may have sent before it knew.
/// Most servers answer a cancelled request no more, and the calls that wait for its turn wait for this.
pub(super) const CANCELLED_FOR: Duration = Duration::from_secs(1);

/// One request in flight.
#[derive(Debug)]
pub(super) struct Call {
    /// What it calls.
    pub(super) method: Method,
    /// Where its messages and its answer go.
    pub(super) stream: Stream,
    number: u64,
    token: Option<Key>,
    is_clients: bool,
    cancelled_until: Option<Instant>,
}

/// Why a request is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallRejection {
    /// Another with its id is in flight.
    Duplicate,
    /// As many as may are in flight.
    TooMany,
}

/// All of them.
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

    /// Whether a request with this id can be taken.
    pub(super) fn check(&self, key: &Key) -> Result<(), CallRejection> {
        if self.open.contains_key(key) {
            Err(CallRejection::Duplicate)
        } else if self.open.len() >= self.max {
            Err(CallRejection::TooMany)
        } else {
            Ok(())
        }
    }

    /// Notes a request for which there is place. `token` is what it wants progress under.
    pub(super) fn begin(&mut self, key: Key, method: Method, token: Option<Key>, stream: Stream) {
        self.begun = self.begun.saturating_add(1);
        let call = Call {
            method,
            stream,
            number: self.begun,
            token,
            is_clients: key.client_id().is_some(),
            cancelled_until: None,
        };
        self.open.insert(key, call);
    }

    /// Takes out the request that was answered.
    pub(super) fn finish(&mut self, key: &Key) -> Option<Call> {
        self.open.remove(key)
    }

    /// Notes that the client no longer waits for the answer.
    pub(super) fn cancel(&mut self, key: &Key, now: Instant) {
        if let Some(call) = self.open.get_mut(key) {
            call.cancelled_until
                .get_or_insert_with(|| now + CANCELLED_FOR);
        }
    }

    /// Takes out the requests that were cancelled long enough ago.
    pub(super) fn expired(&mut self, now: Instant) -> Vec<Call> {
        let is_over = |call: &Call| call.cancelled_until.is_some_and(|until| until <= now);
        self.open
            .extract_if(|_, call| is_over(call))
            .map(|(_, call)| call)
            .collect()
    }

    /// When the next one expires.
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

    /// The stream of the request with this number, unless it was answered since.
    pub(super) fn numbered(&self, number: u64) -> Option<&Stream> {
        self.open
            .values()
            .find(|call| call.number == number)
            .map(|call| &call.stream)
    }

    /// The stream of the request that wants progress under this token.
    pub(super) fn wanting(&self, token: &Key) -> Option<&Stream> {
        self.open
            .values()
            .find(|call| call.token.as_ref() == Some(token))
            .map(|call| &call.stream)
    }

    /// The number of the client's request that a message belongs to which names none.
    pub(super) fn cause(&self) -> Option<u64> {
        let calls = self.open.values().filter(|call| {
            call.is_clients && call.cancelled_until.is_none() && call.stream.is_heard()
        });
        route::cause(calls.map(|call| (call.number, call.method)))
    }

    /// How many of the client's own wait for an answer.
    pub(super) fn clients(&self) -> usize {
        self.open
            .values()
            .filter(|call| call.is_clients && call.cancelled_until.is_none())
            .count()
    }

    /// The stream for whose reader the most waits, by this measure.
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
