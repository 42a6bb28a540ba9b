//! Parts of pages that change while somebody looks at them: server-sent events with HTML, which replaces what the page shows.
//!
//! Invariants: a person has at most [`PER_USER_MAX`] streams and a gateway [`STREAMS_MAX`]; a stream sends at most one event in
//! [`INTERVAL`], and only if something has changed. They are no calls, so they take nothing of a user's limit of these.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use http::header::RETRY_AFTER;
use http::{HeaderValue, StatusCode};
use maud::Markup;
use mooring_session::names::Principal;
use tokio::time::{Instant, sleep_until};

use super::context::PageContext;
use super::layout;
use crate::http::reply;
use mooring_protocol::Event;

/// Most streams of one person at this gateway: each open page has one.
const PER_USER_MAX: usize = 8;
/// Most streams of this gateway.
const STREAMS_MAX: usize = 64;
/// Shortest time between two events of a stream.
const INTERVAL: Duration = Duration::from_secs(1);
/// Longest life of a stream: a browser opens another one, with whatever rights its user has then.
const LIFETIME: Duration = Duration::from_secs(60);
/// After how many seconds a refused browser may try again.
const RETRY_SECONDS: u16 = 30;

/// The open streams, by person.
#[derive(Debug, Default)]
pub(super) struct LiveConnections(Arc<Mutex<HashMap<Principal, usize>>>);

/// One open stream; it is counted until this is dropped.
#[derive(Debug)]
struct LivePermit {
    connections: Arc<Mutex<HashMap<Principal, usize>>>,
    user: Principal,
}

impl LiveConnections {
    /// Counts a stream of this person; none if there are too many.
    fn open(&self, user: &Principal) -> Option<LivePermit> {
        let mut open = lock(&self.0);
        let of_user = open.get(user).copied().unwrap_or_default();
        if of_user >= PER_USER_MAX || open.values().sum::<usize>() >= STREAMS_MAX {
            return None;
        }
        open.insert(user.clone(), of_user + 1);
        Some(LivePermit {
            connections: Arc::clone(&self.0),
            user: user.clone(),
        })
    }
}

impl Drop for LivePermit {
    fn drop(&mut self) {
        if let Entry::Occupied(mut open) = lock(&self.connections).entry(self.user.clone()) {
            match open.get() {
                0 | 1 => drop(open.remove()),
                more => *open.get_mut() = more - 1,
            }
        }
    }
}

fn lock(
    connections: &Mutex<HashMap<Principal, usize>>,
) -> MutexGuard<'_, HashMap<Principal, usize>> {
    connections.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a stream goes on with.
struct LiveStream<R> {
    context: Arc<PageContext>,
    render: R,
    sent: String,
    next_at: Instant,
    ends_at: Instant,
    _permit: LivePermit,
}

/// A stream of what `render` shows now and whenever it has changed; it ends when that shows nothing any more.
pub(super) fn stream<R, F>(context: PageContext, render: R) -> Response
where
    R: Fn(Arc<PageContext>) -> F + Send + 'static,
    F: Future<Output = Option<Markup>> + Send + 'static,
{
    let page = context.app.page.as_ref();
    let permit = page.and_then(|page| page.live.open(&context.identity.principal));
    let Some(permit) = permit else {
        let mut reply = layout::empty(StatusCode::TOO_MANY_REQUESTS);
        let seconds = HeaderValue::from(RETRY_SECONDS);
        reply.headers_mut().insert(RETRY_AFTER, seconds);
        return reply;
    };
    let now = Instant::now();
    let live = LiveStream {
        context: Arc::new(context),
        render,
        sent: String::new(),
        next_at: now,
        ends_at: now + LIFETIME,
        _permit: permit,
    };
    let events = stream::unfold(live, async |mut live| {
        let event = live.next_event().await?;
        Some((Ok::<_, Infallible>(event), live))
    });
    reply::event_stream(Box::pin(events))
}

impl<R, F> LiveStream<R>
where
    R: Fn(Arc<PageContext>) -> F,
    F: Future<Output = Option<Markup>>,
{
    async fn next_event(&mut self) -> Option<Bytes> {
        let stopping = self.context.app.core.relay.stopping.clone();
        loop {
            tokio::select! {
                () = stopping.cancelled() => return None,
                () = sleep_until(self.ends_at) => return None,
                () = sleep_until(self.next_at) => {}
            }
            self.next_at = Instant::now() + INTERVAL;
            let shown = (self.render)(Arc::clone(&self.context))
                .await?
                .into_string();
            if shown != self.sent {
                let event = Event::message(shown.clone()).encode();
                self.sent = shown;
                return Some(event);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    fn user(number: usize) -> Principal {
        Principal::parse(format!("user {number}").as_bytes()).unwrap()
    }

    #[test]
    fn a_person_cannot_take_the_streams_of_others() {
        let connections = LiveConnections::default();
        let open = |number| connections.open(&user(number));
        let mut held: Vec<_> = (0..PER_USER_MAX).map(|_| open(0).unwrap()).collect();
        assert!(open(0).is_none(), "one more of the same person");
        held.pop();
        held.push(open(0).unwrap());
        for number in 1..STREAMS_MAX / PER_USER_MAX {
            held.extend((0..PER_USER_MAX).map(|_| open(number).unwrap()));
        }
        assert!(open(100).is_none(), "one more of all");
        drop(held);
        assert_eq!(
            lock(&connections.0).len(),
            0,
            "people without streams are forgotten"
        );
    }
}
