//! Reads the response of an instance or a peer into a [`Reply`]. The one user of the event parser.
//!
//! Invariants: if the body breaks, its stream ends with an error; without an error it is complete. Nothing waits for the
//! body here, so a caller that needs only the head has it at once; what arrived with the head is taken as it is.

use std::collections::VecDeque;
use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::{FutureExt, Stream, StreamExt, TryStreamExt, stream};
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, Response};
use http_body::Body;
use http_body_util::{BodyDataStream, BodyExt};

use mooring_protocol::header::MCP_SESSION_ID;
use mooring_protocol::{Event, EventError, EventParser, Reply, ReplyBody, ReplyError};

/// Reads a response. Events are limited to `event_bytes_max` bytes. `broken` makes the error for a broken body.
pub fn read_http<B>(
    response: Response<B>,
    event_bytes_max: usize,
    broken: impl Fn(B::Error) -> ReplyError + Send + Unpin + 'static,
) -> Reply
where
    B: Body<Data = Bytes, Error: Error> + Send + Unpin + 'static,
{
    let (head, body) = response.into_parts();
    let body = if is_event_stream(&head.headers) {
        ReplyBody::Events(Box::pin(Events {
            chunks: BodyDataStream::new(body).map_err(broken),
            parser: EventParser::new(event_bytes_max),
            arrived: VecDeque::new(),
            refused: None,
        }))
    } else {
        json(body, broken)
    };
    Reply {
        status: head.status,
        session_id: head.headers.get(MCP_SESSION_ID).cloned(),
        retry_after: head.headers.get(RETRY_AFTER).cloned(),
        challenge: None,
        allow: None,
        body,
    }
}

/// A body that arrived whole with its head, as short ones do, is a text: it leaves with its length, and its call is done.
fn json<B>(
    mut body: B,
    broken: impl Fn(B::Error) -> ReplyError + Send + Unpin + 'static,
) -> ReplyBody
where
    B: Body<Data = Bytes, Error: Error> + Send + Unpin + 'static,
{
    if body.is_end_stream() {
        return ReplyBody::Json(Bytes::new());
    }
    let has_length = body.size_hint().exact().is_some();
    let first = match body.frame().now_or_never() {
        Some(Some(Ok(frame))) => frame.into_data().ok().map(Ok),
        Some(Some(Err(error))) => Some(Err(broken(error))),
        Some(None) => return ReplyBody::Json(Bytes::new()),
        None => None,
    };
    match first {
        Some(Ok(text)) if has_length && body.is_end_stream() => ReplyBody::Json(text),
        first => {
            let rest = BodyDataStream::new(body).map_err(broken);
            ReplyBody::JsonStream(Box::pin(stream::iter(first).chain(rest)))
        }
    }
}

fn is_event_stream(headers: &HeaderMap) -> bool {
    const EVENTS: &str = "text/event-stream";
    headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.trim_start().get(..EVENTS.len()))
        .is_some_and(|essence| essence.eq_ignore_ascii_case(EVENTS))
}

/// The events in a body. Memory is bounded by one event and one chunk.
struct Events<S> {
    chunks: S,
    parser: EventParser,
    /// The parsed events of the latest chunk.
    arrived: VecDeque<Event>,
    /// Why reading has stopped.
    refused: Option<EventError>,
}

impl<S: Stream<Item = Result<Bytes, ReplyError>> + Unpin> Stream for Events<S> {
    type Item = Result<Event, ReplyError>;

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Event, ReplyError>>> {
        let this = &mut *self;
        loop {
            if let Some(event) = this.arrived.pop_front() {
                return Poll::Ready(Some(Ok(event)));
            }
            if let Some(error) = this.refused.take() {
                return Poll::Ready(Some(Err(error.into())));
            }
            let Some(chunk) = ready!(Pin::new(&mut this.chunks).poll_next(context)?) else {
                return Poll::Ready(None);
            };
            let arrived = &mut this.arrived;
            this.refused = (this.parser)
                .push(&chunk, |event| arrived.push_back(event))
                .err();
        }
    }
}
