//! Writes replies as HTTP responses, their events as server-sent events.
//!
//! Invariant: a stream sends a comment after each [`KEEP_ALIVE`] of silence, and its headers tell proxies neither to
//! buffer nor to cache it.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream::Fuse;
use futures_util::{FutureExt, Stream, StreamExt, TryStreamExt};
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde::Serialize;
use smallvec::SmallVec;
use tokio::task::JoinHandle;
use tokio::time::{Instant, Sleep, sleep_until};

use mooring_protocol::event::comment;
use mooring_protocol::header::{MCP_SESSION_ID, X_ACCEL_BUFFERING, X_MCP_SESSION_ID};
use mooring_protocol::{Event, Reply, ReplyBody};
use mooring_usage::SHORT_BYTES_MAX;

/// Interval of comments on a silent stream, well under the 60 s idle timeout usual for proxies.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Most events that are written together, and the bytes from which on no other is added.
const WRITTEN_TOGETHER_MAX: usize = 64;
const WRITTEN_TOGETHER_BYTES: usize = 16 * 1024;

/// Converts a reply to an HTTP response.
pub(super) fn to_http(reply: Reply) -> Response {
    let Reply {
        status,
        session_id,
        retry_after,
        challenge,
        allow,
        // The endpoint writes it, which knows how its client reaches the gateway.
        session_key: _,
        refused_by: _,
        memory: _,
        body,
    } = reply;
    let mut response = match body {
        ReplyBody::Empty => Response::new(Body::empty()),
        ReplyBody::Json(text) => typed("application/json", Body::from(text)),
        ReplyBody::Text(text) => typed("text/plain; charset=utf-8", Body::from(text)),
        // hyper drops what it has not written yet when a body fails, the head included: so it gets a chance to write.
        ReplyBody::JsonStream(chunks) => {
            let chunks = chunks.or_else(|error| async {
                tokio::task::yield_now().await;
                Err(error)
            });
            typed("application/json", Body::from_stream(chunks))
        }
        ReplyBody::Events(events) => event_stream(events.map_ok(|event: Event| event.encode())),
    };
    *response.status_mut() = status;
    let headers = response.headers_mut();
    if let Some(mut id) = session_id {
        id.set_sensitive(true);
        headers.insert(MCP_SESSION_ID, id.clone());
        headers.insert(X_MCP_SESSION_ID, id);
    }
    if let Some(retry_after) = retry_after {
        headers.insert(RETRY_AFTER, retry_after);
    }
    if let Some(challenge) = challenge {
        headers.insert(WWW_AUTHENTICATE, challenge);
    }
    if let Some(methods) = allow {
        headers.insert(ALLOW, HeaderValue::from_static(methods));
    }
    response
}

/// A JSON response.
pub(super) fn json(status: StatusCode, text: impl Into<Bytes>) -> Response {
    to_http(Reply::json(status, text))
}

/// The same of a value.
pub(super) fn json_value(status: StatusCode, value: &impl Serialize) -> Response {
    match serde_json::to_string(value) {
        Ok(text) => json(status, text),
        // A map whose keys are no text: no type of this gateway has one.
        Err(error) => {
            tracing::error!(%error, "a reply could not be written as JSON");
            json(StatusCode::INTERNAL_SERVER_ERROR, "{}".to_owned())
        }
    }
}

fn typed(content_type: &'static str, body: Body) -> Response {
    let mut response = Response::new(body);
    let content_type = HeaderValue::from_static(content_type);
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

/// A response of events; each chunk is one whole event.
pub(super) fn event_stream<E>(
    chunks: impl Stream<Item = Result<Bytes, E>> + Send + Unpin + 'static,
) -> Response
where
    E: Into<axum::BoxError> + Send + Unpin + 'static,
{
    let body = Body::from_stream(EventChunks {
        events: chunks.fuse(),
        held: HeldEvents::default(),
        failure: None,
        is_begun: false,
        turn: None,
        sent_at: Instant::now(),
        silence: None,
    });
    let mut response = typed("text/event-stream", body);
    let headers: &mut HeaderMap = response.headers_mut();
    // Disables buffering by nginx (`proxy_buffering`).
    headers.insert(X_ACCEL_BUFFERING, HeaderValue::from_static("no"));
    headers.insert(
        CACHE_CONTROL,
        HeaderValue::from_static("no-cache, no-transform"),
    );
    response
}

/// Events as they are written, and a comment after each period of silence.
///
/// A write costs more than an event does, so events of a burst are written together. The connection that they come from is
/// another task of this thread and delivers one at a time, when it runs: an event is held until the tasks that are ready
/// have run. The first event of a reply leaves with its head and is not held.
struct EventChunks<S, E> {
    events: Fuse<S>,
    held: HeldEvents,
    /// What ends the stream after the events before it.
    failure: Option<E>,
    /// Whether an event was written.
    is_begun: bool,
    /// A task that is behind those that were ready when it was spawned. A wake-up of this task would not do: hyper polls a
    /// body twice before other tasks run.
    turn: Option<JoinHandle<()>>,
    sent_at: Instant,
    /// Set once the stream has been silent: the timer is set once per silence, and not for each event.
    silence: Option<Pin<Box<Sleep>>>,
}

/// Events that are not written yet.
#[derive(Default)]
struct HeldEvents {
    events: SmallVec<[Bytes; 1]>,
    bytes: usize,
}

impl HeldEvents {
    fn push(&mut self, event: Bytes) {
        self.bytes += event.len();
        self.events.push(event);
    }

    fn is_full(&self) -> bool {
        self.events.len() >= WRITTEN_TOGETHER_MAX || self.bytes >= WRITTEN_TOGETHER_BYTES
    }

    /// Those that are written now, as one chunk. A long event is written alone, as the bytes that keep its memory.
    fn take(&mut self) -> Option<Bytes> {
        let Self { mut events, .. } = std::mem::take(self);
        let is_long = |event: &Bytes| event.len() > SHORT_BYTES_MAX;
        if events.len() > 1
            && events.last().is_some_and(is_long)
            && let Some(long) = events.pop()
        {
            self.push(long);
        }
        match events.len() {
            0 | 1 => events.pop(),
            _ => Some(events.concat().into()),
        }
    }
}

impl<S, E> EventChunks<S, E>
where
    S: Stream<Item = Result<Bytes, E>> + Unpin,
{
    /// Events that are to be written now; `None` at the end.
    fn poll_events(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, E>>> {
        // A long event that was left from before is written first.
        while !self.held.is_full() && self.failure.is_none() {
            match self.events.poll_next_unpin(context) {
                Poll::Ready(Some(Ok(event))) => {
                    self.held.push(event);
                    self.turn = None;
                }
                Poll::Ready(Some(Err(error))) => self.failure = Some(error),
                Poll::Ready(None) => break,
                Poll::Pending if self.held.events.is_empty() => return Poll::Pending,
                Poll::Pending => {
                    if self.is_begun {
                        let turn = self.turn.get_or_insert_with(|| tokio::spawn(async {}));
                        let _ = ready!(turn.poll_unpin(context));
                    }
                    break;
                }
            }
        }
        self.is_begun = true;
        self.turn = None;
        let next = match self.held.take() {
            Some(events) => Some(Ok(events)),
            None => self.failure.take().map(Err),
        };
        Poll::Ready(next)
    }
}

impl<S, E> Stream for EventChunks<S, E>
where
    S: Stream<Item = Result<Bytes, E>> + Unpin,
    E: Unpin,
{
    type Item = Result<Bytes, E>;

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, E>>> {
        let this = &mut *self;
        let next = match this.poll_events(context) {
            Poll::Ready(next) => next,
            Poll::Pending if this.turn.is_some() => return Poll::Pending,
            Poll::Pending => {
                let due = this.sent_at + KEEP_ALIVE;
                let silence = this
                    .silence
                    .get_or_insert_with(|| Box::pin(sleep_until(due)));
                ready!(silence.as_mut().poll(context));
                // An event since the timer was set has begun another silence.
                if Instant::now() < due {
                    silence.as_mut().reset(due);
                    ready!(silence.as_mut().poll(context));
                }
                this.silence = None;
                Some(Ok(comment("keep-alive")))
            }
        };
        this.sent_at = Instant::now();
        Poll::Ready(next)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use futures_util::stream;
    use http_body_util::BodyExt;

    use super::*;

    async fn text(response: Response) -> String {
        let body = response.into_body().collect().await.unwrap().to_bytes();
        String::from_utf8(body.to_vec()).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_stream_has_comments_and_headers_against_buffering() {
        let answer = stream::once(async {
            tokio::time::sleep(KEEP_ALIVE * 2 + KEEP_ALIVE / 2).await;
            Ok(Event::message("{\"id\":1}"))
        });
        let response = to_http(Reply::events(answer));
        let header = |name| response.headers().get(name).unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(header(CONTENT_TYPE), "text/event-stream");
        assert_eq!(header(CACHE_CONTROL), "no-cache, no-transform");
        assert_eq!(header(X_ACCEL_BUFFERING), "no");
        let expected = ": keep-alive\n\n: keep-alive\n\ndata: {\"id\":1}\n\n";
        assert_eq!(text(response).await, expected);
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_begins_the_silence_anew() {
        let events = stream::iter([1, 2]).then(|_| async {
            tokio::time::sleep(KEEP_ALIVE - Duration::from_millis(1)).await;
            Ok(Event::message("{}"))
        });
        let response = to_http(Reply::events(Box::pin(events)));
        assert_eq!(text(response).await, "data: {}\n\ndata: {}\n\n");
    }

    /// The chunks that events become; an error is an empty one.
    async fn chunks(
        events: impl Stream<Item = Result<Bytes, &'static str>> + Send + Unpin + 'static,
    ) -> Vec<Bytes> {
        let body = event_stream(events).into_body().into_data_stream();
        StreamExt::collect(body.map(Result::unwrap_or_default)).await
    }

    #[tokio::test]
    async fn events_that_have_arrived_are_one_chunk_up_to_a_length() {
        let long = "x".repeat(WRITTEN_TOGETHER_BYTES);
        let arrived = [Ok("a"), Ok("b"), Ok(long.as_str()), Ok("c"), Err("gone")];
        let arrived = arrived.map(|event| event.map(|event| Bytes::from(event.to_owned())));
        let together = format!("ab{long}");
        assert_eq!(
            chunks(stream::iter(arrived)).await,
            [&together, "c", ""],
            "an error comes after the events before it"
        );
        let many = stream::iter((0..WRITTEN_TOGETHER_MAX + 1).map(|_| Ok("a".into())));
        let lengths: Vec<_> = chunks(many).await.iter().map(Bytes::len).collect();
        assert_eq!(lengths, [WRITTEN_TOGETHER_MAX, 1]);
    }

    /// Copied together with others, it would no longer keep the memory that it takes.
    #[tokio::test]
    async fn a_long_event_is_written_alone_and_keeps_its_memory() {
        let long = Bytes::from("x".repeat(SHORT_BYTES_MAX + 1));
        let arrived = [
            Bytes::from("a"),
            Bytes::from("b"),
            long.clone(),
            Bytes::from("c"),
        ];
        let written = chunks(stream::iter(arrived.map(Ok))).await;
        assert_eq!(written, ["ab".into(), long.clone(), Bytes::from("c")]);
        assert_eq!(written.get(1).unwrap().as_ptr(), long.as_ptr());
    }

    #[tokio::test]
    async fn events_of_a_task_that_delivers_one_at_a_time_are_written_together() {
        let (sender, receiver) = tokio::sync::mpsc::channel(1);
        tokio::spawn(async move {
            for event in 0..5 {
                sender.send(event).await.unwrap();
            }
        });
        let events = stream::unfold(receiver, async |mut receiver| {
            let event: u8 = receiver.recv().await?;
            Some((Ok(Bytes::from(event.to_string())), receiver))
        });
        let chunks = chunks(Box::pin(events)).await;
        assert_eq!(chunks.concat(), b"01234");
        assert_eq!(chunks.len(), 2, "the first one, and all others: {chunks:?}");
    }

    #[tokio::test]
    async fn a_reply_that_is_whole_says_its_length_and_headers() {
        let reply = Reply {
            session_id: Some(HeaderValue::from_static("s")),
            retry_after: Some(HeaderValue::from_static("1")),
            allow: Some("GET"),
            ..Reply::json(StatusCode::METHOD_NOT_ALLOWED, "{}")
        };
        let response = to_http(reply);
        for (name, value) in [
            ("content-type", "application/json"),
            ("mcp-session-id", "s"),
            ("x-mcp-session-id", "s"),
            ("retry-after", "1"),
            ("allow", "GET"),
        ] {
            assert_eq!(response.headers().get(name).unwrap(), value);
        }
        assert_eq!(http_body::Body::size_hint(response.body()).exact(), Some(2));
        assert_eq!(text(response).await, "{}");
    }
}
