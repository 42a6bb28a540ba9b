//! Reads the response of an instance or a peer into a [`Reply`]. The one user of the event parser.
//!
//! Invariants: if the body breaks, its stream ends with an error; without an error it is complete. Nothing waits for the
//! body here, so a caller that needs only the head has it at once; what arrived with the head is taken as it is.

use std::collections::VecDeque;
use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{FutureExt, Stream, StreamExt, TryStreamExt, stream};
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, Response};
use http_body::Body;
use http_body_util::{BodyDataStream, BodyExt};
use tokio::time::{Sleep, sleep};

use mooring_protocol::header::MCP_SESSION_ID;
use mooring_protocol::{Event, EventParser, EventTooLong, Reply, ReplyBody, ReplyError};
use mooring_usage::{HeldMemory, MemoryShare, RoomWait, SHORT_BYTES_MAX};

/// After so long without a byte of a long event, memory is held only for what has arrived of it.
const STALLED_AFTER: Duration = Duration::from_secs(2);

/// Reads a response. Events are limited to `event_bytes_max` bytes, and long ones are charged to `memory`. `broken`
/// makes the error for a broken body.
pub fn read_http<B>(
    response: Response<B>,
    event_bytes_max: usize,
    memory: Option<Arc<MemoryShare>>,
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
            event_bytes_max,
            memory: memory.clone(),
            held: None,
            room: RoomWait::default(),
            silence: None,
            is_stalled: false,
            arrived: VecDeque::new(),
        }))
    } else {
        json(body, broken)
    };
    Reply {
        status: head.status,
        session_id: head.headers.get(MCP_SESSION_ID).cloned(),
        retry_after: head.headers.get(RETRY_AFTER).cloned(),
        challenge: None,
        session_key: None,
        refused_by: None,
        allow: None,
        memory,
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

/// The events in a body. Its own memory is bounded by one event and one chunk, and before a long event is read on, the
/// memory for the longest one is taken: the rest waits in its connection until there is room.
struct Events<S> {
    chunks: S,
    parser: EventParser,
    event_bytes_max: usize,
    /// At whose expense long events are held; none for requests of the gateway itself.
    memory: Option<Arc<MemoryShare>>,
    /// The memory that is taken for an event that has not ended.
    held: Option<HeldMemory>,
    room: RoomWait,
    /// Ends when the server has sent nothing of a long event for a while.
    silence: Option<Pin<Box<Sleep>>>,
    /// Whether that has ended. The rest may never come, so no memory is taken for it before it does.
    is_stalled: bool,
    /// The parsed events of the latest chunk.
    arrived: VecDeque<Result<Event, EventTooLong>>,
}

impl<S> Events<S> {
    /// Ready when there is memory for the rest of the event.
    fn poll_room(&mut self, context: &mut Context<'_>) -> Poll<Result<(), ReplyError>> {
        let Some(memory) = &self.memory else {
            return Poll::Ready(Ok(()));
        };
        if self.is_stalled || self.parser.unfinished_bytes() <= SHORT_BYTES_MAX {
            return Poll::Ready(Ok(()));
        }
        let held = (self.held).get_or_insert_with(|| Arc::clone(memory).hold());
        let bytes = self.event_bytes_max.min(memory.longest());
        let missing = bytes.saturating_sub(held.bytes());
        if missing > 0 {
            ready!(held.poll_grow(missing, &mut self.room, context))?;
        }
        Poll::Ready(Ok(()))
    }

    /// Waits for the server, and gives memory back that a server which has stalled leaves unused.
    fn wait_for_more(&mut self, context: &mut Context<'_>) {
        let Some(held) = self.held.as_mut().filter(|_| !self.is_stalled) else {
            return;
        };
        let silence = (self.silence).get_or_insert_with(|| Box::pin(sleep(STALLED_AFTER)));
        if silence.as_mut().poll(context).is_ready() {
            self.is_stalled = true;
            held.shrink_to(self.parser.unfinished_bytes());
        }
    }

    /// Leaves the memory that was taken with the event for which it was taken. One that is skipped needs none.
    fn settle_held(&mut self) {
        let is_needed = self.parser.unfinished_bytes() > SHORT_BYTES_MAX;
        match self.arrived.front_mut() {
            None if is_needed => {}
            None | Some(Err(_)) => self.held = None,
            Some(Ok(long)) => {
                if let Some(mut held) = self.held.take() {
                    held.shrink_to(long.length());
                    long.held = Some(Arc::new(held));
                }
            }
        }
    }
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
                return Poll::Ready(Some(event.map_err(ReplyError::from)));
            }
            if let Err(error) = ready!(this.poll_room(context)) {
                return Poll::Ready(Some(Err(error)));
            }
            let chunk = match Pin::new(&mut this.chunks).poll_next(context)? {
                Poll::Ready(Some(chunk)) => chunk,
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => {
                    this.wait_for_more(context);
                    return Poll::Pending;
                }
            };
            (this.silence, this.is_stalled) = (None, false);
            let arrived = &mut this.arrived;
            this.parser.push(&chunk, |event| arrived.push_back(event));
            this.settle_held();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::panic,
        reason = "a test fails by panicking"
    )]
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http_body::Frame;
    use http_body_util::StreamBody;
    use mooring_protocol::EventStream;
    use mooring_usage::{MemoryBudget, SharePart};
    use tokio::sync::mpsc;

    use super::*;

    const CHUNK_BYTES: usize = 32 * 1024;
    const LONG_CHUNKS: usize = 16;
    const EVENT_BYTES_MAX: usize = (LONG_CHUNKS + 1) * CHUNK_BYTES;

    /// Events of a response, each in so many chunks, and how many chunks were read.
    fn response(chunks: &[usize], memory: &Arc<MemoryShare>) -> (EventStream, Arc<AtomicUsize>) {
        let read = Arc::new(AtomicUsize::new(0));
        let mut all = Vec::new();
        for chunks in chunks {
            all.push(Bytes::from_static(b"data: "));
            all.extend(vec![Bytes::from(vec![b'x'; CHUNK_BYTES]); *chunks]);
            all.push(Bytes::from_static(b"\n\n"));
        }
        let counted = Arc::clone(&read);
        let frames = stream::iter(all).map(move |chunk| {
            counted.fetch_add(1, Ordering::Relaxed);
            Ok::<_, Infallible>(Frame::data(chunk))
        });
        (events(StreamBody::new(frames), memory), read)
    }

    fn events(
        body: impl Body<Data = Bytes, Error = Infallible> + Send + Unpin + 'static,
        memory: &Arc<MemoryShare>,
    ) -> EventStream {
        let response = Response::builder()
            .header(CONTENT_TYPE, "text/event-stream")
            .body(body)
            .unwrap();
        let memory = Some(Arc::clone(memory));
        let reply = read_http(response, EVENT_BYTES_MAX, memory, |never| match never {});
        match reply.body {
            ReplyBody::Events(events) => events,
            other => panic!("{other:?} instead of events"),
        }
    }

    /// Room for one event at a time.
    fn memory(patience: mooring_usage::Patience) -> Arc<MemoryShare> {
        let bytes_max = EVENT_BYTES_MAX;
        MemoryBudget::new(
            bytes_max,
            bytes_max,
            SharePart::Whole,
            "test.budget",
            patience,
        )
        .share()
    }

    #[tokio::test]
    async fn a_long_event_is_read_on_only_while_there_is_memory_for_it() {
        let memory = memory(|| Box::pin(std::future::pending()));
        let (mut first, _) = response(&[1, LONG_CHUNKS], &memory);
        let short = first.next().await.unwrap().unwrap();
        assert_eq!((short.held.is_none(), memory.used()), (true, 0));
        let long = first.next().await.unwrap().unwrap();
        assert_eq!(memory.used(), LONG_CHUNKS * CHUNK_BYTES);

        let (mut second, read) = response(&[LONG_CHUNKS], &memory);
        let mut next = second.next();
        assert!(futures_util::poll!(&mut next).is_pending());
        let begun = read.load(Ordering::Relaxed);
        assert!(begun <= 4, "{begun} chunks");
        // What is encoded takes its memory on.
        let encoded = long.encode();
        drop(long);
        assert!(futures_util::poll!(&mut next).is_pending());
        drop(encoded);
        let event = next.await.unwrap().unwrap();
        assert_eq!(
            event.data.as_ref().unwrap().len(),
            LONG_CHUNKS * CHUNK_BYTES
        );
        drop(event);
        assert_eq!(memory.used(), 0);
    }

    #[tokio::test]
    async fn an_event_that_is_too_long_is_an_error_and_the_next_one_is_read() {
        let memory = memory(|| Box::pin(std::future::pending()));
        let (mut events, _) = response(&[LONG_CHUNKS * 8, 1], &memory);
        let error = events.next().await.unwrap().unwrap_err();
        assert!(matches!(error, ReplyError::Event(_)), "{error}");
        assert_eq!(memory.used(), 0, "what is skipped takes no memory");
        let next = events.next().await.unwrap().unwrap();
        assert_eq!(next.data.as_ref().unwrap().len(), CHUNK_BYTES);
        assert!(events.next().await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_stalls_in_a_long_event_leaves_its_memory_to_others() {
        let memory = memory(|| Box::pin(std::future::pending()));
        let (chunks, arriving) = mpsc::channel(LONG_CHUNKS);
        let frames = stream::unfold(arriving, async |mut arriving| {
            let chunk: Bytes = arriving.recv().await?;
            Some((Ok::<_, Infallible>(Frame::data(chunk)), arriving))
        });
        let mut stalled = events(StreamBody::new(Box::pin(frames)), &memory);
        chunks.send(Bytes::from_static(b"data: ")).await.unwrap();
        for _ in 0..3 {
            let part = Bytes::from(vec![b'x'; CHUNK_BYTES]);
            chunks.send(part).await.unwrap();
        }
        let mut next = stalled.next();
        assert!(futures_util::poll!(&mut next).is_pending());
        assert_eq!(memory.used(), EVENT_BYTES_MAX);
        tokio::time::sleep(STALLED_AFTER).await;
        assert!(futures_util::poll!(&mut next).is_pending());
        let arrived = memory.used();
        assert!(arrived <= 3 * CHUNK_BYTES + 10, "{arrived}");
        // Reading continues.
        chunks.send(Bytes::from_static(b"x")).await.unwrap();
        assert!(futures_util::poll!(&mut next).is_pending());
        assert_eq!(memory.used(), EVENT_BYTES_MAX);
        chunks.send(Bytes::from_static(b"\n\n")).await.unwrap();
        let event = next.await.unwrap().unwrap();
        assert_eq!(memory.used(), event.length());
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_event_without_memory_is_an_error_that_says_so() {
        let patience = || -> Pin<Box<dyn Future<Output = ()> + Send>> {
            Box::pin(tokio::time::sleep(std::time::Duration::from_secs(30)))
        };
        let memory = memory(patience);
        let mut all = Arc::clone(&memory).hold();
        all.try_grow(EVENT_BYTES_MAX).unwrap();
        let (mut events, _) = response(&[LONG_CHUNKS], &memory);
        let error = events.next().await.unwrap().unwrap_err();
        assert!(matches!(error, ReplyError::NoRoom(_)), "{error}");
        assert!(error.to_string().contains("test.budget"), "{error}");
    }
}
