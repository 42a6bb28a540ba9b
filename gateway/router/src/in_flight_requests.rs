//! The client requests that this gateway has in flight, by the ids that cancellations name.
//!
//! A client cancels a request by its own id, and the upstream server knows it by its tag. Invariants: an entry lasts as
//! long as its guard, or a while longer if the client gave up its stream; of several requests with one id, which clients
//! should not have, the newest is found.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;
use mooring_session::names::ServerName;
use smallvec::SmallVec;

use crate::lock_stripes::LockStripes;
use mooring_protocol::{Lane, PendingRequest, RequestTag};
use mooring_store::SessionKey;

/// How long a request whose client disconnected can be cancelled. Clients that stop waiting often close the stream
/// first.
const DISCONNECTED_KEPT: Duration = Duration::from_secs(600);
/// Most requests of disconnected clients that are kept, in all parts together: those of one session are all in one part.
const DISCONNECTED_MAX: usize = 10_000;

/// Within what the ids of a client are its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum RequestScope {
    /// A session at a server; the lane distinguishes several clients of the session.
    Session(SessionKey, ServerName, Option<Lane>),
    /// A client of pooled upstream sessions.
    Pooled(Lane),
}

#[derive(Debug, Default)]
struct Requests {
    /// Nearly always one each.
    by_scope: HashMap<RequestScope, SmallVec<[Entry; 1]>, RandomState>,
    /// Those of this part whose clients are gone.
    disconnected: usize,
}

#[derive(Debug, Default)]
struct SharedRequests {
    parts: LockStripes<Requests>,
    /// Those of all parts whose clients are gone. Changed only under the lock of a part.
    disconnected: AtomicUsize,
}

#[derive(Debug)]
struct Entry {
    request: PendingRequest,
    began: Instant,
    /// When it was last published to the other gateways.
    published: Option<Instant>,
    /// Since when its client is gone.
    disconnected: Option<Instant>,
    /// When its client first cancelled it here.
    cancelled: Option<tokio::time::Instant>,
}

/// The requests in flight. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct InFlightRequests(Arc<SharedRequests>);

/// A client's request in flight. Dropping it ends it.
#[derive(Debug)]
pub struct InFlightRequest {
    requests: InFlightRequests,
    scope: RequestScope,
    /// What its reply has to answer.
    pub pending: PendingRequest,
    is_disconnected: bool,
}

impl InFlightRequests {
    /// Notes a request until the guard is dropped.
    pub(crate) fn begin(&self, scope: RequestScope, pending: PendingRequest) -> InFlightRequest {
        let entry = Entry {
            request: pending.clone(),
            began: Instant::now(),
            published: None,
            disconnected: None,
            cancelled: None,
        };
        let mut requests = self.0.parts.part_of(&scope);
        let entries = requests.by_scope.entry(scope.clone()).or_default();
        entries.push(entry);
        drop(requests);
        InFlightRequest {
            requests: self.clone(),
            scope,
            pending,
            is_disconnected: false,
        }
    }

    /// Records that the client cancels the newest request with this id whose client is connected, or else the newest.
    /// Returns its tag.
    pub(crate) fn cancel(&self, scope: &RequestScope, id_json: &str) -> Option<RequestTag> {
        let mut requests = self.0.parts.part_of(scope);
        let named = |entry: &&mut Entry| *entry.request.id_json == *id_json;
        let entries = requests.by_scope.get_mut(scope)?.iter_mut();
        let entry = entries.filter(named).max_by_key(|entry| entry.rank())?;
        entry
            .cancelled
            .get_or_insert_with(tokio::time::Instant::now);
        Some(entry.request.tag)
    }

    /// Within which of these scopes that request is.
    pub(crate) fn find(&self, scopes: &[RequestScope], id_json: &str) -> Option<usize> {
        let named = |entry: &&Entry| *entry.request.id_json == *id_json;
        let found = scopes.iter().enumerate().filter_map(|(place, scope)| {
            let requests = self.0.parts.part_of(scope);
            let entries = requests.by_scope.get(scope)?.iter();
            let newest = entries.filter(named).map(Entry::rank).max()?;
            Some((newest, place))
        });
        found.max().map(|(_, place)| place)
    }

    /// The requests that began over `age` ago and were not published within `period`, which count as published now.
    /// Forgets those whose clients are gone for long.
    pub(crate) fn take_unpublished(
        &self,
        age: Duration,
        period: Duration,
    ) -> Vec<(RequestScope, PendingRequest)> {
        let now = Instant::now();
        let is_due = |entry: &Entry| match entry.published {
            None => now.duration_since(entry.began) >= age,
            // What may have replaced that of a client that is gone is not replaced again.
            Some(at) => entry.disconnected.is_none() && now.duration_since(at) >= period,
        };
        let mut unpublished = Vec::new();
        for mut requests in self.0.parts.parts() {
            requests.forget_disconnected(now, &self.0.disconnected);
            for (scope, entries) in &mut requests.by_scope {
                for entry in entries.iter_mut().filter(|entry| is_due(entry)) {
                    entry.published = Some(now);
                    unpublished.push((scope.clone(), entry.request.clone()));
                }
            }
        }
        unpublished
    }
}

impl InFlightRequests {
    /// Notes that a request could not be published, which is tried again.
    pub(crate) fn note_unpublished(&self, scope: &RequestScope, tag: RequestTag) {
        let mut requests = self.0.parts.part_of(scope);
        let entries = requests.by_scope.get_mut(scope);
        for entry in entries.into_iter().flatten() {
            if entry.request.tag == tag {
                entry.published = None;
            }
        }
    }
}

impl Entry {
    /// Of several requests with one id, a cancellation means that of the greatest rank.
    const fn rank(&self) -> (bool, Instant) {
        (self.disconnected.is_none(), self.began)
    }
}

impl Requests {
    /// Removes the requests whose clients are gone for long, also from the number of those of `all` parts.
    fn forget_disconnected(&mut self, now: Instant, all: &AtomicUsize) {
        if self.disconnected == 0 {
            return;
        }
        let is_kept = |at: Instant| now.duration_since(at) < DISCONNECTED_KEPT;
        let before_all = self.disconnected;
        self.by_scope.retain(|_, entries| {
            let before = entries.len();
            entries.retain(|entry| entry.disconnected.is_none_or(is_kept));
            self.disconnected -= before - entries.len();
            !entries.is_empty()
        });
        all.fetch_sub(before_all - self.disconnected, Ordering::Relaxed);
    }

    /// Removes the request, or keeps it for a while if its client `is_disconnected` and `all` parts have room.
    fn end(
        &mut self,
        scope: &RequestScope,
        tag: RequestTag,
        is_disconnected: bool,
        all: &AtomicUsize,
    ) {
        let Some(entries) = self.by_scope.get_mut(scope) else {
            return;
        };
        let Some(at) = (entries.iter()).rposition(|entry| entry.request.tag == tag) else {
            return;
        };
        match entries.get_mut(at) {
            Some(entry) if is_disconnected && take_place(all) => {
                entry.disconnected = Some(Instant::now());
                self.disconnected += 1;
            }
            _ => drop(entries.remove(at)),
        }
        if entries.is_empty() {
            self.by_scope.remove(scope);
        }
    }
}

/// Counts one more of those whose clients are gone, unless there are as many as are kept.
fn take_place(all: &AtomicUsize) -> bool {
    let more = |count: usize| (count < DISCONNECTED_MAX).then_some(count + 1);
    all.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
        .is_ok()
}

impl InFlightRequest {
    /// The tag under which it is sent.
    #[must_use]
    pub const fn tag(&self) -> RequestTag {
        self.pending.tag
    }

    /// Whether its client cancelled it at this gateway so long ago.
    pub(crate) fn was_cancelled(&self, ago: Duration) -> bool {
        let requests = self.requests.0.parts.part_of(&self.scope);
        let entries = requests.by_scope.get(&self.scope);
        let mut own =
            (entries.into_iter().flatten()).filter(|entry| entry.request.tag == self.pending.tag);
        own.any(|entry| entry.cancelled.is_some_and(|at| at.elapsed() >= ago))
    }

    /// Ends it unanswered because its client disconnected, who may still cancel it.
    pub(crate) fn disconnect(mut self) {
        self.is_disconnected = true;
    }
}

impl Drop for InFlightRequest {
    fn drop(&mut self) {
        let mut requests = self.requests.0.parts.part_of(&self.scope);
        let all = &self.requests.0.disconnected;
        requests.end(&self.scope, self.pending.tag, self.is_disconnected, all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn request(id: &str, tag: u128) -> PendingRequest {
        PendingRequest {
            id_json: id.into(),
            tag: RequestTag(tag),
        }
    }

    fn scope(lane: u64) -> RequestScope {
        RequestScope::Pooled(Lane(lane))
    }

    #[test]
    fn the_newest_request_in_flight_with_an_id_is_found() {
        let requests = InFlightRequests::default();
        let first = requests.begin(scope(1), request("1", 1));
        let second = requests.begin(scope(1), request("1", 2));
        let _other = requests.begin(scope(1), request("\"1\"", 3));
        let tag = |lane, id| requests.cancel(&scope(lane), id).map(|RequestTag(tag)| tag);
        assert_eq!(tag(1, "1"), Some(2));
        assert_eq!(tag(1, "\"1\""), Some(3));
        assert_eq!(tag(2, "1"), None);
        drop(second);
        assert_eq!(tag(1, "1"), Some(1));
        drop(first);
        assert_eq!(tag(1, "1"), None);
    }

    #[test]
    fn of_several_scopes_that_of_the_newest_request_is_found() {
        let requests = InFlightRequests::default();
        let scopes = [scope(1), scope(2), scope(3)];
        let _first = requests.begin(scope(2), request("1", 1));
        let newest = requests.begin(scope(3), request("1", 2));
        let _other = requests.begin(scope(1), request("2", 3));
        assert_eq!(requests.find(&scopes, "1"), Some(2));
        newest.disconnect();
        assert_eq!(requests.find(&scopes, "1"), Some(1));
        assert_eq!(requests.find(&scopes, "3"), None);
    }

    #[test]
    fn requests_are_published_once_in_a_period() {
        let requests = InFlightRequests::default();
        let _entry = requests.begin(scope(1), request("1", 1));
        assert!(requests.take_unpublished(HOUR, HOUR).is_empty());
        let due = requests.take_unpublished(Duration::ZERO, HOUR);
        assert_eq!(due, [(scope(1), request("1", 1))]);
        assert!(requests.take_unpublished(Duration::ZERO, HOUR).is_empty());
        let again = requests.take_unpublished(Duration::ZERO, Duration::ZERO);
        assert_eq!(again.len(), 1);
    }

    #[test]
    fn nothing_is_left_of_finished_requests() {
        let requests = InFlightRequests::default();
        drop(requests.begin(scope(1), request("1", 1)));
        assert!(requests.0.parts.part_of(&scope(1)).by_scope.is_empty());
    }

    #[test]
    fn a_request_of_a_disconnected_client_can_be_cancelled_for_a_while() {
        let requests = InFlightRequests::default();
        requests.begin(scope(1), request("1", 1)).disconnect();
        requests.take_unpublished(HOUR, HOUR);
        assert_eq!(requests.cancel(&scope(1), "1"), Some(RequestTag(1)));
        let past = Instant::now().checked_sub(DISCONNECTED_KEPT * 2);
        for entry in requests
            .0
            .parts
            .part_of(&scope(1))
            .by_scope
            .values_mut()
            .flatten()
        {
            entry.disconnected = past;
        }
        requests.take_unpublished(HOUR, HOUR);
        let left = requests.0.parts.part_of(&scope(1));
        assert!(left.by_scope.is_empty() && left.disconnected == 0);
        assert_eq!(requests.0.disconnected.load(Ordering::Relaxed), 0);
    }

    /// All requests of a scope are in one part.
    #[test]
    fn one_session_may_have_many_requests_of_disconnected_clients() {
        let requests = InFlightRequests::default();
        let end = |id: &str, tag| {
            requests.begin(scope(1), request(id, tag)).disconnect();
        };
        (1..DISCONNECTED_MAX as u128).for_each(|tag| end("1", tag));
        end("last", 0);
        assert_eq!(requests.cancel(&scope(1), "last"), Some(RequestTag(0)));
        end("one more", u128::MAX);
        assert_eq!(requests.cancel(&scope(1), "one more"), None);
    }
}
