//! Parts of pages that change while somebody looks at them: server-sent events with HTML, which replaces what the page shows.
//!
//! Invariant: a stream sends at most one event in [`INTERVAL`], and only if something has changed. Streams are no calls, so they
//! take nothing of a user's limit of these; they have a limit of their own.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use http::header::RETRY_AFTER;
use http::{HeaderValue, StatusCode};
use maud::Markup;
use tokio::time::{Instant, sleep_until};

use super::context::PageContext;
use super::html;
use crate::http::operator_page::LivePermit;
use crate::http::reply;
use mooring_protocol::Event;

/// Shortest time between two events of a stream.
const INTERVAL: Duration = Duration::from_secs(1);
/// Longest life of a stream: a browser opens another one, with whatever rights its user has then.
const LIFETIME: Duration = Duration::from_secs(60);
/// After how many seconds a refused browser may try again.
const RETRY_SECONDS: u16 = 30;

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
        let mut reply = html::empty(StatusCode::TOO_MANY_REQUESTS);
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
