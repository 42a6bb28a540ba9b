//! The reply to a message inside the gateway: its status and headers, and its messages.
//!
//! Transports return replies, the router rewrites them, and the HTTP layer writes them. Server-sent events exist as
//! bytes only where a body is read from an upstream ([`crate::EventParser`]) and where one is written to a client or a
//! peer ([`Event::encode`]). Invariant: JSON is forwarded byte for byte, and events are complete. A reader cancels by
//! dropping the reply.

use std::error::Error;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_core::Stream;
use http::{HeaderValue, StatusCode};
use thiserror::Error;

use super::event::{Event, EventTooLong};
use super::held::{guarded_bytes, held_bytes};
use super::stream::StreamError;
use mooring_usage::{HeldMemory, MemoryShare, NoRoom, SHORT_BYTES_MAX};

/// The chunks of one JSON text.
pub type ByteStream = Pin<Box<dyn Stream<Item = Result<Bytes, ReplyError>> + Send>>;
/// A stream of events.
pub type EventStream = Pin<Box<dyn Stream<Item = Result<Event, ReplyError>> + Send>>;

/// Why the rest of a reply is missing.
#[derive(Debug, Error)]
pub enum ReplyError {
    /// Its connection broke.
    #[error("{0}")]
    Broken(#[source] Box<dyn Error + Send + Sync>),
    /// One of its events is too long, and was skipped: the next one can be read.
    #[error(transparent)]
    Event(#[from] EventTooLong),
    /// The client's id cannot be restored in it.
    #[error(transparent)]
    Json(#[from] StreamError),
    /// It exceeds its reader's limit.
    #[error("the reply is longer than {0} bytes")]
    TooLong(usize),
    /// There is no memory to hold it in.
    #[error("the reply was not read: {0}")]
    NoRoom(#[from] NoRoom),
}

impl ReplyError {
    /// The error for a broken connection.
    pub fn broken(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Broken(cause.into())
    }
}

/// The reply to one message.
#[derive(Debug)]
pub struct Reply {
    /// The HTTP status, which every transport maps.
    pub status: StatusCode,
    /// The session id of an `initialize`: the upstream's in its reply, the gateway's in the client's.
    pub session_id: Option<HeaderValue>,
    /// When to retry (RFC 9110, 10.2.3).
    pub retry_after: Option<HeaderValue>,
    /// How to authenticate (RFC 9110, 11.6.1): the gateway's own challenge, never an upstream's.
    pub challenge: Option<HeaderValue>,
    /// The key by which later requests are in the same session, where clients have no sessions of their own.
    pub session_key: Option<Box<SessionKeyChange>>,
    /// The limit for which the gateway refuses the request: a setting, or words where it is none.
    pub refused_by: Option<&'static str>,
    /// The allowed methods of a 405 (RFC 9110, 10.2.1).
    pub allow: Option<&'static str>,
    /// At whose expense its body is held, where it has to be whole; none for a reply of the gateway itself.
    pub memory: Option<Arc<MemoryShare>>,
    /// The body.
    pub body: ReplyBody,
}

/// A change of the key by which a client's requests are in one session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionKeyChange {
    /// The client gets a key for its session at this server.
    Issued {
        /// The server.
        server: Box<str>,
        /// The key, a secret.
        key: HeaderValue,
    },
    /// The session of the key that it has for this server has ended.
    Ended {
        /// The server.
        server: Box<str>,
    },
}

/// The body of a reply.
pub enum ReplyBody {
    /// Empty: a message was accepted, or refused without details.
    Empty,
    /// A complete JSON text.
    Json(Bytes),
    /// A text that is not JSON, such as an upstream's error page.
    Text(Bytes),
    /// A JSON text that is still arriving.
    JsonStream(ByteStream),
    /// A sequence of messages.
    Events(EventStream),
}

impl fmt::Debug for ReplyBody {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Empty => "Empty",
            Self::Json(_) => "Json",
            Self::Text(_) => "Text",
            Self::JsonStream(_) => "JsonStream",
            Self::Events(_) => "Events",
        })
    }
}

impl Reply {
    /// A reply with this body and no headers.
    #[must_use]
    pub const fn new(status: StatusCode, body: ReplyBody) -> Self {
        Self {
            status,
            session_id: None,
            retry_after: None,
            challenge: None,
            session_key: None,
            refused_by: None,
            allow: None,
            memory: None,
            body,
        }
    }

    /// A reply without a body.
    #[must_use]
    pub const fn empty(status: StatusCode) -> Self {
        Self::new(status, ReplyBody::Empty)
    }

    /// A JSON reply.
    #[must_use]
    pub fn json(status: StatusCode, text: impl Into<Bytes>) -> Self {
        Self::new(status, ReplyBody::Json(text.into()))
    }

    /// An event stream.
    #[must_use]
    pub fn events(events: impl Stream<Item = Result<Event, ReplyError>> + Send + 'static) -> Self {
        Self::new(StatusCode::OK, ReplyBody::Events(Box::pin(events)))
    }

    /// Reads its text, at most `bytes_max` bytes, which is charged to its memory. Events are not read.
    ///
    /// # Errors
    /// [`ReplyError`].
    pub async fn read_text(self, bytes_max: usize) -> Result<HeldText, ReplyError> {
        read_held(self.body, bytes_max, self.memory.as_ref()).await
    }
}

/// A text that was read whole, and the memory that it takes.
#[derive(Debug, Default)]
pub struct HeldText {
    /// The text.
    pub text: Bytes,
    /// The memory, if the text is long.
    pub held: Option<Arc<HeldMemory>>,
}

impl HeldText {
    /// The text as bytes that keep the memory.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        held_bytes(self.text, self.held.as_ref())
    }
}

/// Reads the text of a body. The memory of a long one is taken before more of it is read: the rest waits in its
/// connection until there is room for the longest text.
async fn read_held(
    body: ReplyBody,
    bytes_max: usize,
    memory: Option<&Arc<MemoryShare>>,
) -> Result<HeldText, ReplyError> {
    let longest = bytes_max.min(memory.map_or(bytes_max, |memory| memory.longest()));
    let mut held = memory.map(|memory| Arc::clone(memory).hold());
    let mut take = async |read: usize| match &mut held {
        Some(held) if held.bytes() == 0 && read > SHORT_BYTES_MAX => {
            held.grow(longest.max(read)).await
        }
        _ => Ok(()),
    };
    let text = match body {
        ReplyBody::Empty | ReplyBody::Events(_) => Bytes::new(),
        ReplyBody::Json(text) | ReplyBody::Text(text) => {
            take(text.len()).await?;
            text
        }
        ReplyBody::JsonStream(mut chunks) => {
            // Most texts are a single chunk, which needs no copy.
            let first = next(&mut chunks).await.transpose()?.unwrap_or_default();
            take(first.len()).await?;
            let mut whole: Option<BytesMut> = None;
            while let Some(chunk) = next(&mut chunks).await.transpose()? {
                let whole = whole.get_or_insert_with(|| BytesMut::from(&*first));
                if whole.len() + chunk.len() > bytes_max {
                    return Err(ReplyError::TooLong(bytes_max));
                }
                take(whole.len() + chunk.len()).await?;
                whole.extend_from_slice(&chunk);
            }
            whole.map_or(first, BytesMut::freeze)
        }
    };
    if text.len() > bytes_max {
        return Err(ReplyError::TooLong(bytes_max));
    }
    let held = held.filter(|held| held.bytes() > 0).map(|mut held| {
        held.shrink_to(text.len());
        Arc::new(held)
    });
    Ok(HeldText { text, held })
}

impl ReplyBody {
    /// The same reply; `guard` is dropped when its body is read to the end or dropped, and for a whole text when the last
    /// reference to its bytes is.
    #[must_use]
    pub fn guarded_by(self, guard: impl Unpin + Send + 'static) -> Self {
        match self {
            Self::Empty => Self::Empty,
            Self::Json(text) => Self::Json(guarded_bytes(text, guard)),
            Self::Text(text) => Self::Text(guarded_bytes(text, guard)),
            Self::JsonStream(stream) => Self::JsonStream(Box::pin(GuardedStream {
                stream,
                _guard: guard,
            })),
            Self::Events(stream) => Self::Events(Box::pin(GuardedStream {
                stream,
                _guard: guard,
            })),
        }
    }

    /// Reads a short text, at most `bytes_max` bytes, that counts toward no user's memory. Events are not read.
    ///
    /// # Errors
    /// [`ReplyError`].
    pub async fn read_text(self, bytes_max: usize) -> Result<Bytes, ReplyError> {
        Ok(read_held(self, bytes_max, None).await?.text)
    }
}

/// A stream, and the guard that is dropped with it.
struct GuardedStream<S, G> {
    stream: S,
    _guard: G,
}

impl<S: Stream + Unpin, G: Unpin> Stream for GuardedStream<S, G> {
    type Item = S::Item;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<S::Item>> {
        Pin::new(&mut self.stream).poll_next(context)
    }
}

async fn next<T>(stream: &mut Pin<Box<dyn Stream<Item = T> + Send>>) -> Option<T> {
    poll_fn(|context| stream.as_mut().poll_next(context)).await
}

/// The messages of a reply, whatever its form.
#[derive(Debug)]
pub struct ReplyMessages {
    /// The status of the reply.
    pub status: StatusCode,
    /// The id of the last event, with which the rest of the reply can be requested.
    pub last_event_id: Option<Box<str>>,
    /// How long to wait before requesting the rest.
    pub retry: Option<Duration>,
    /// The memory that the latest message takes, if it is long.
    held: Option<Arc<HeldMemory>>,
    memory: Option<Arc<MemoryShare>>,
    body: ReplyBody,
    message_bytes_max: usize,
}

impl ReplyMessages {
    /// The messages of `reply`, each limited to `message_bytes_max` bytes.
    #[must_use]
    pub fn of(reply: Reply, message_bytes_max: usize) -> Self {
        Self {
            status: reply.status,
            last_event_id: None,
            retry: None,
            held: None,
            memory: reply.memory,
            body: reply.body,
            message_bytes_max,
        }
    }

    /// The memory that the latest message takes, if it is long. It is given back with the next message, unless it was
    /// taken from here.
    pub const fn take_held(&mut self) -> Option<Arc<HeldMemory>> {
        self.held.take()
    }

    /// Whether the reply is a stream of events.
    #[must_use]
    pub const fn is_events(&self) -> bool {
        matches!(self.body, ReplyBody::Events(_))
    }

    /// The next message; `None` at the end. A text body is returned unchanged, even if it is not a message.
    ///
    /// # Errors
    /// [`ReplyError`].
    pub async fn next(&mut self) -> Result<Option<Bytes>, ReplyError> {
        let limit = self.message_bytes_max;
        self.held = None;
        let ReplyBody::Events(events) = &mut self.body else {
            let body = std::mem::replace(&mut self.body, ReplyBody::Empty);
            let HeldText { text, held } = read_held(body, limit, self.memory.as_ref()).await?;
            self.held = held;
            return Ok((!text.is_empty()).then_some(text));
        };
        while let Some(event) = next(events).await.transpose()? {
            if let Some(id) = &event.id {
                self.last_event_id = (!id.is_empty()).then(|| id.clone());
            }
            if let Some(retry_ms) = event.retry_ms {
                self.retry = Some(Duration::from_millis(retry_ms));
            }
            match event.as_message() {
                Some(message) if message.len() > limit => return Err(ReplyError::TooLong(limit)),
                Some(message) => {
                    self.held.clone_from(&event.held);
                    return Ok(Some(message.clone()));
                }
                None => {}
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use futures_util::stream;
    use mooring_usage::{MemoryBudget, SharePart};

    use super::*;

    fn json(chunks: &'static [&'static str]) -> Reply {
        let chunks = chunks
            .iter()
            .map(|chunk| Ok(Bytes::from_static(chunk.as_bytes())));
        let body = ReplyBody::JsonStream(Box::pin(stream::iter(chunks)));
        Reply::new(StatusCode::OK, body)
    }

    async fn all(messages: &mut ReplyMessages) -> Vec<Bytes> {
        let mut all = Vec::new();
        while let Some(message) = messages.next().await.unwrap() {
            all.push(message);
        }
        all
    }

    #[tokio::test]
    async fn json_is_one_message_and_empty_is_none() {
        let mut messages = ReplyMessages::of(json(&["{\"a\"", ":1}"]), 7);
        assert!(!messages.is_events());
        assert_eq!(all(&mut messages).await, ["{\"a\":1}"]);
        let mut messages = ReplyMessages::of(json(&[]), 7);
        assert!(all(&mut messages).await.is_empty());
        for long in [json(&["{\"a\"", ":11}"]), json(&["{\"a\":11}"])] {
            let mut messages = ReplyMessages::of(long, 7);
            assert!(matches!(messages.next().await, Err(ReplyError::TooLong(7))));
        }
    }

    #[tokio::test]
    async fn a_guard_lasts_as_long_as_the_body_whatever_its_form() {
        let bodies = [
            || ReplyBody::Json(Bytes::from_static(b"{}")),
            || ReplyBody::Text(Bytes::from_static(b"no json")),
            || json(&["{", "}"]).body,
        ];
        for body in bodies {
            let guard = Arc::new(());
            let reply = Reply::new(StatusCode::OK, body().guarded_by(Arc::clone(&guard)));
            assert_eq!(Arc::strong_count(&guard), 2);
            let dropped = Reply::new(StatusCode::OK, body().guarded_by(Arc::clone(&guard)));
            drop(dropped);
            assert_eq!(Arc::strong_count(&guard), 2);
            drop(reply.read_text(100).await.unwrap());
            assert_eq!(Arc::strong_count(&guard), 1);
        }
    }

    #[tokio::test]
    async fn events_are_messages_with_a_resume_position() {
        let events = [
            Event {
                id: Some("1".into()),
                retry_ms: Some(5),
                ..Event::message("")
            },
            Event {
                id: Some("2".into()),
                event: Some("message".into()),
                ..Event::message("{\"a\":1}")
            },
            Event {
                event: Some("other".into()),
                ..Event::message("{}")
            },
            Event::message("{\"b\":2}"),
        ];
        let reply = Reply::events(stream::iter(events.map(Ok)));
        let mut messages = ReplyMessages::of(reply, 100);
        assert!(messages.is_events());
        assert_eq!(all(&mut messages).await, ["{\"a\":1}", "{\"b\":2}"]);
        assert_eq!(messages.last_event_id.as_deref(), Some("2"));
        assert_eq!(messages.retry, Some(Duration::from_millis(5)));
    }

    #[tokio::test]
    async fn a_message_over_the_limit_is_refused() {
        let events = [Ok(Event::message("0123456789"))];
        let mut messages = ReplyMessages::of(Reply::events(stream::iter(events)), 9);
        assert!(matches!(messages.next().await, Err(ReplyError::TooLong(9))));
    }

    #[tokio::test]
    async fn a_long_text_is_read_whole_only_while_there_is_memory_for_it() {
        const CHUNK: usize = 48 * 1024;
        const BYTES_MAX: usize = 4 * CHUNK;
        let patience =
            || -> Pin<Box<dyn Future<Output = ()> + Send>> { Box::pin(std::future::pending()) };
        let budget = MemoryBudget::new(BYTES_MAX, BYTES_MAX, SharePart::Whole, "test", patience);
        let memory = budget.share();
        let reply = || {
            let chunks = [(); 3].map(|()| Ok(Bytes::from(vec![b' '; CHUNK])));
            let body = ReplyBody::JsonStream(Box::pin(stream::iter(chunks)));
            Reply {
                memory: Some(Arc::clone(&memory)),
                ..Reply::new(StatusCode::OK, body)
            }
        };
        let first = reply().read_text(BYTES_MAX).await.unwrap();
        assert_eq!(memory.used(), 3 * CHUNK, "what is not needed is given back");
        let kept = first.into_bytes();
        let mut second = Box::pin(reply().read_text(BYTES_MAX));
        assert!(futures_util::poll!(&mut second).is_pending());
        drop(kept);
        let second = second.await.unwrap();
        assert_eq!(second.text.len(), 3 * CHUNK);
        drop(second);
        let mut messages = ReplyMessages::of(reply(), BYTES_MAX);
        let _message = messages.next().await.unwrap().unwrap();
        assert_eq!(memory.used(), 3 * CHUNK);
        let held = messages.take_held();
        drop(messages);
        assert_eq!(memory.used(), 3 * CHUNK);
        drop(held);
        assert_eq!(memory.used(), 0);
    }
}
