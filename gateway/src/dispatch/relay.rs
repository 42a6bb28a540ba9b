//! Relaying: the body of an upstream's reply becomes the client's while it arrives.
//!
//! Invariant: memory is bounded by one event; a call whose stream ends without its answer gets an error that says so,
//! unless the stream carries event ids, by which the client can resume it. Where such a stream breaks, a ping decides
//! whether there is still somebody to resume it with.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame};
use hyper::body::Incoming;
use mooring_session::view::BindingView;
use tokio::time::{Instant, Sleep};

use crate::affinity::{Affinity, InFlight, Moved, Session};
use crate::mcp::event::{Event, EventError, comment};
use crate::mcp::ids::{Answered, Epoch, Id};
use crate::mcp::sse::{Passing, SseRewriter, Verdict};
use crate::mcp::stream::{StreamError, StreamRewriter};
use crate::mcp::{ErrorBody, ErrorKind, Kind, Rebound};
use crate::upstream::{Pulse, Server};

/// How long a stream may be silent before a comment keeps it open, well under the usual 60 s of proxies.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The body of a reply to a client.
pub struct Relay {
    upstream: Incoming,
    mode: Mode,
    /// What goes out before anything of the upstream's.
    first: Option<Bytes>,
    ended: bool,
    /// Set while it is asked whether a stream that broke can be resumed.
    checking: Option<Pin<Box<dyn Future<Output = Pulse> + Send>>>,
    /// Keeps the session alive, and its binding counted, while the reply is under way.
    _in_flight: Option<InFlight>,
}

/// How the upstream's bytes are changed on the way.
pub(super) enum Mode {
    /// One JSON message whose id is undone.
    Json(StreamRewriter),
    /// Events, each a message.
    Events(Box<Events>),
}

/// The state of an event stream.
pub(super) struct Events {
    rewriter: SseRewriter,
    audience: Audience,
    /// The call that this stream answers; none for a GET stream.
    answering: Option<Answering>,
    /// Where the stream could be resumed; none for calls over shared sessions, which have no GET.
    origin: Option<Origin>,
    moved: Option<Moved>,
    keep_alive: Pin<Box<Sleep>>,
}

/// Whose stream it is, and over which binding it comes.
#[derive(Debug)]
pub(super) struct Origin {
    pub(super) caller: Caller,
    pub(super) binding: BindingView,
}

/// Who has called, so that it can be asked whether the upstream session is still there.
#[derive(Debug)]
pub struct Caller {
    /// Asks.
    pub affinity: Affinity,
    /// The session of the call.
    pub session: Session,
    /// The server that was called.
    pub server: Arc<Server>,
}

/// Who an upstream's messages are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Audience {
    /// One client, over the binding of this epoch.
    Bound(Epoch),
    /// One call of one of several clients: what the server asks or tells otherwise is for none of them.
    Shared,
}

impl Audience {
    /// What the ids of the server's requests are marked with.
    pub(super) const fn epoch(self) -> Epoch {
        match self {
            Self::Bound(epoch) => epoch,
            // Requests over a shared session are dropped, so no epoch is ever seen; no binding has epoch 0.
            Self::Shared => Epoch(0),
        }
    }
}

/// The request that a stream has to answer.
#[derive(Clone, Debug)]
pub struct Answering {
    /// The client's id as the client wrote it.
    pub id_json: Box<str>,
}

/// Why the reply is cut.
#[derive(Debug, thiserror::Error)]
pub enum RelayError {
    /// The upstream's body broke off.
    #[error("the upstream's reply broke off")]
    Upstream(#[source] hyper::Error),
    /// An event is too long.
    #[error(transparent)]
    Event(#[from] EventError),
    /// The JSON cannot be passed on.
    #[error(transparent)]
    Json(#[from] StreamError),
}

impl Relay {
    pub(super) fn new(upstream: Incoming, mode: Mode, in_flight: Option<InFlight>) -> Self {
        let first = match &mode {
            Mode::Events(events) => events
                .moved
                .as_ref()
                .map(|moved| moved.told().warning_event()),
            _ => None,
        };
        Self {
            upstream,
            mode,
            first,
            ended: false,
            checking: None,
            _in_flight: in_flight,
        }
    }

    fn transform(&mut self, chunk: Bytes) -> Result<Bytes, RelayError> {
        match &mut self.mode {
            Mode::Json(rewriter) => Ok(rewriter.push(chunk)?),
            Mode::Events(events) => Ok(events.push(&chunk)?),
        }
    }

    fn end(&mut self) -> Bytes {
        self.ended = true;
        match &mut self.mode {
            Mode::Json(rewriter) => rewriter.finish(),
            Mode::Events(events) => events.end(),
        }
    }

    /// An event stream that breaks ends with an error event where a call waits for its answer, at once or after a
    /// ping; anything else has no such place and is cut, which the client sees.
    fn broke(&mut self, error: hyper::Error) -> Result<Bytes, RelayError> {
        tracing::info!(%error, "an upstream's reply broke off");
        match &mut self.mode {
            Mode::Events(events) => {
                self.checking = events.ask_whether_resumable();
                Ok(match self.checking {
                    Some(_) => Bytes::new(),
                    None => self.fail(),
                })
            }
            Mode::Json(_) => {
                self.ended = true;
                Err(RelayError::Upstream(error))
            }
        }
    }

    /// Ends the stream with the error that the call may have run.
    fn fail(&mut self) -> Bytes {
        self.ended = true;
        match &mut self.mode {
            Mode::Events(events) => events.outcome_unknown(),
            Mode::Json(_) => Bytes::new(),
        }
    }

    fn poll_check(&mut self, context: &mut Context<'_>) -> Poll<Bytes> {
        let Some(checking) = &mut self.checking else {
            return Poll::Ready(Bytes::new());
        };
        let pulse = std::task::ready!(checking.as_mut().poll(context));
        self.checking = None;
        Poll::Ready(match pulse {
            Pulse::Alive => {
                self.ended = true;
                Bytes::new()
            }
            _ => self.fail(),
        })
    }
}

fn frame(data: Bytes) -> Option<Result<Frame<Bytes>, RelayError>> {
    (!data.is_empty()).then(|| Ok(Frame::data(data)))
}

impl Events {
    pub(super) fn new(
        audience: Audience,
        event_bytes_max: usize,
        answering: Option<Answering>,
        origin: Option<Origin>,
        moved: Option<Moved>,
    ) -> Self {
        Self {
            rewriter: SseRewriter::new(audience.epoch(), event_bytes_max),
            audience,
            answering,
            origin,
            moved,
            keep_alive: Box::pin(tokio::time::sleep(KEEP_ALIVE)),
        }
    }

    fn push(&mut self, chunk: &[u8]) -> Result<Bytes, EventError> {
        let Self {
            rewriter,
            audience,
            answering,
            moved,
            keep_alive,
            ..
        } = self;
        let audience = *audience;
        keep_alive.as_mut().reset(Instant::now() + KEEP_ALIVE);
        let mark = moved.as_ref().map(Moved::told);
        rewriter.push(chunk, |passing| {
            judge(passing, audience, answering, mark.as_ref())
        })
    }

    fn is_resumable(&self) -> bool {
        self.origin.is_some() && self.rewriter.has_event_ids()
    }

    fn end(&mut self) -> Bytes {
        if self.is_resumable() {
            Bytes::new()
        } else {
            self.outcome_unknown()
        }
    }

    /// The error event for the call that waits, if one does.
    fn outcome_unknown(&mut self) -> Bytes {
        let Some(answering) = self.answering.take() else {
            return Bytes::new();
        };
        let error = ErrorBody::new(ErrorKind::OutcomeUnknown)
            .answering(Id::from_json(&answering.id_json).ok())
            .to_bytes();
        Event::message(&String::from_utf8_lossy(&error)).encode()
    }

    /// Asks the instance whether it still knows the session, where somebody waits and could resume.
    fn ask_whether_resumable(&mut self) -> Option<Pin<Box<dyn Future<Output = Pulse> + Send>>> {
        if self.answering.is_none() || !self.is_resumable() {
            return None;
        }
        let Origin { caller, binding } = self.origin.take()?;
        Some(Box::pin(async move {
            caller
                .affinity
                .pulse(&caller.session, &caller.server, &binding)
                .await
        }))
    }

    fn poll_keep_alive(&mut self, context: &mut Context<'_>) -> Poll<Bytes> {
        if self.keep_alive.as_mut().poll(context).is_pending() {
            return Poll::Pending;
        }
        self.keep_alive.as_mut().reset(Instant::now() + KEEP_ALIVE);
        // The reset timer has to be polled once to wake this task again.
        let _ = self.keep_alive.as_mut().poll(context);
        if self.rewriter.is_between_events() {
            Poll::Ready(comment("keep-alive"))
        } else {
            Poll::Pending
        }
    }
}

/// Decides about one event: what belongs to this client passes, and the answer of the call is noted.
fn judge<'v>(
    passing: &Passing<'_>,
    audience: Audience,
    answering: &mut Option<Answering>,
    mark: Option<&'v Rebound<'v>>,
) -> Verdict<'v> {
    match passing {
        Passing::Message { message, down, .. } => {
            if message.kind() == Kind::Request && audience == Audience::Shared {
                return Verdict::Drop;
            }
            if !message.kind().is_response() {
                return Verdict::Pass;
            }
            match &down.answers {
                Some(Answered::Client { id, .. }) => {
                    if answering.as_ref().is_some_and(|a| *a.id_json == **id) {
                        *answering = None;
                    }
                    mark.map_or(Verdict::Pass, Verdict::Mark)
                }
                Some(Answered::Nobody) => Verdict::Pass,
                Some(Answered::Gateway { .. } | Answered::Foreign) | None => Verdict::Drop,
            }
        }
        Passing::OtherType { .. } => Verdict::Pass,
        Passing::NotAMessage(error) => {
            tracing::warn!(%error, "an upstream sent an event that is no message; it is dropped");
            Verdict::Drop
        }
        Passing::NotRewritable(error) => {
            tracing::warn!(%error, "an upstream sent a message that cannot be passed on; it is dropped");
            Verdict::Drop
        }
    }
}

impl Body for Relay {
    type Data = Bytes;
    type Error = RelayError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RelayError>>> {
        let this = &mut *self;
        if let Some(first) = this.first.take() {
            return Poll::Ready(frame(first));
        }
        while !this.ended {
            if this.checking.is_some() {
                let data = std::task::ready!(this.poll_check(context));
                return Poll::Ready(frame(data));
            }
            let data = match Pin::new(&mut this.upstream).poll_frame(context) {
                Poll::Ready(Some(Ok(arrived))) => match arrived.into_data() {
                    Ok(chunk) => match this.transform(chunk) {
                        Ok(data) => data,
                        Err(error) => {
                            this.ended = true;
                            tracing::warn!(%error, "an upstream's reply cannot be passed on");
                            return Poll::Ready(Some(Err(error)));
                        }
                    },
                    Err(_trailers) => continue,
                },
                Poll::Ready(Some(Err(error))) => match this.broke(error) {
                    Ok(data) => data,
                    Err(error) => return Poll::Ready(Some(Err(error))),
                },
                Poll::Ready(None) => this.end(),
                Poll::Pending => match &mut this.mode {
                    Mode::Events(events) => match events.poll_keep_alive(context) {
                        Poll::Ready(comment) => comment,
                        Poll::Pending => return Poll::Pending,
                    },
                    _ => return Poll::Pending,
                },
            };
            if !data.is_empty() {
                return Poll::Ready(frame(data));
            }
        }
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        self.ended
    }
}
