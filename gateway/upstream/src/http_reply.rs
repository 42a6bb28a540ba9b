//! Reads the response of an instance or a peer into a [`Reply`]. The one user of the event parser.
//!
//! Invariant: if the body breaks, its stream ends with an error; without an error it is complete. A short body is read
//! before the reply is returned.

use std::collections::VecDeque;
use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::{Stream, TryStreamExt};
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, Response};
use http_body::Body;
use http_body_util::{BodyDataStream, BodyExt};

use mooring_protocol::header::MCP_SESSION_ID;
use mooring_protocol::{Event, EventError, EventParser, Reply, ReplyBody, ReplyError};

/// Longest body, in bytes, that is read whole if its length is known: at most what a connection buffers anyway.
const SHORT_BYTES_MAX: u64 = 64 * 1024;

/// Reads a response. Events are limited to `event_bytes_max` bytes. `broken` makes the error for a broken body.
///
/// # Errors
/// That of `broken`, if a short body broke.
pub async fn read_http<B>(
    response: Response<B>,
    event_bytes_max: usize,
    broken: impl Fn(B::Error) -> ReplyError + Send + Unpin + 'static,
) -> Result<Reply, ReplyError>
where
    B: Body<Data = Bytes, Error: Error> + Send + Unpin + 'static,
{
    let (head, body) = response.into_parts();
    let is_short = (body.size_hint().exact()).is_some_and(|length| length <= SHORT_BYTES_MAX);
    let body = if is_event_stream(&head.headers) {
        ReplyBody::Events(Box::pin(Events {
            chunks: BodyDataStream::new(body).map_err(broken),
            parser: EventParser::new(event_bytes_max),
            arrived: VecDeque::new(),
            refused: None,
        }))
    } else if is_short {
        ReplyBody::Json(body.collect().await.map_err(broken)?.to_bytes())
    } else {
        ReplyBody::JsonStream(Box::pin(BodyDataStream::new(body).map_err(broken)))
    };
    Ok(Reply {
        status: head.status,
        session_id: head.headers.get(MCP_SESSION_ID).cloned(),
        retry_after: head.headers.get(RETRY_AFTER).cloned(),
        allow: None,
        body,
    })
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
