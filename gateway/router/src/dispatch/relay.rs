//! Relaying: the body of an upstream's reply becomes the client's while it arrives.
//!
//! Invariant: memory is bounded by one event; a call whose stream ends without its answer gets an error that says so,
//! unless the stream carries event ids, by which the client can resume it. Where such a stream breaks, a ping decides
//! whether there is still somebody to resume it with.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame};

use super::abandoned::AbandonedReply;
use super::call_turn::CallTurn;
use super::event_relay::{EventRelay, ReportFuture};
use crate::affinity::{InFlight, StreamHold};
use mooring_protocol::event::EventError;
use mooring_protocol::stream::{StreamError, StreamRewriter};
use mooring_upstream::{self as upstream, BodyError, ProbeResult};

/// The body of a reply to a client.
pub struct Relay {
    /// None once it is an [`AbandonedReply`]'s.
    upstream: Option<upstream::Body>,
    mode: RelayMode,
    /// What goes out before anything of the upstream's.
    first: Option<Bytes>,
    ended: bool,
    /// Set while it is asked whether a stream that broke can be resumed.
    checking: Option<Pin<Box<dyn Future<Output = ProbeResult> + Send>>>,
    /// What reports a loss, and goes out once that is noted: the next call must not report it too.
    reporting: Option<(ReportFuture, Bytes)>,
    guards: ReplyGuards,
}

/// What lasts for as long as a reply is under way.
#[derive(Debug, Default)]
pub struct ReplyGuards {
    /// Keeps the session alive, and its binding counted.
    pub in_flight: Option<InFlight>,
    /// Keeps the session's stream this worker's.
    pub stream: Option<StreamHold>,
    /// The call's place in the order of its session.
    pub turn: Option<CallTurn>,
}

/// How the upstream's bytes are changed on the way.
pub(super) enum RelayMode {
    /// One JSON message whose id is undone.
    Json(StreamRewriter),
    /// Events, each a message.
    Events(Box<EventRelay>),
}

/// Why the reply is cut.
#[derive(Debug, thiserror::Error)]
pub enum RelayError {
    /// The upstream's body broke off.
    #[error("the upstream's reply broke off")]
    Upstream(#[source] BodyError),
    /// An event is too long.
    #[error(transparent)]
    Event(#[from] EventError),
    /// The JSON cannot be relayed.
    #[error(transparent)]
    Json(#[from] StreamError),
}

impl RelayMode {
    /// What a chunk of the upstream's becomes. `turn` is shown what the server says.
    pub(super) fn push(
        &mut self,
        chunk: Bytes,
        turn: Option<&CallTurn>,
    ) -> Result<Bytes, RelayError> {
        match self {
            Self::Json(rewriter) => Ok(rewriter.push(chunk)?),
            Self::Events(events) => Ok(events.push(&chunk, turn)?),
        }
    }

    fn note_reported(&mut self) -> Option<ReportFuture> {
        match self {
            Self::Json(_) => None,
            Self::Events(events) => events.note_reported(),
        }
    }

    /// Whether the answer of a call is still to come, and comes here or nowhere.
    pub(super) fn is_awaited(&self) -> bool {
        match self {
            Self::Json(_) => true,
            Self::Events(events) => events.is_awaited_to_the_end(),
        }
    }

    /// Whether a chunk says anything about the call; a comment that keeps a stream open does not.
    pub(super) fn says_something(
        &mut self,
        chunk: Bytes,
        turn: Option<&CallTurn>,
    ) -> Result<bool, RelayError> {
        let before = self.messages();
        self.push(chunk, turn)?;
        Ok(before.is_none_or(|before| self.messages() != Some(before)))
    }

    /// How many messages a stream had; none where all of it is one message.
    fn messages(&self) -> Option<u64> {
        match self {
            Self::Json(_) => None,
            Self::Events(events) => Some(events.messages()),
        }
    }
}

impl Relay {
    pub(super) fn new(upstream: upstream::Body, mode: RelayMode, guards: ReplyGuards) -> Self {
        let first = match &mode {
            RelayMode::Events(events) => events.warning(),
            RelayMode::Json(_) => None,
        };
        Self {
            upstream: Some(upstream),
            mode,
            first,
            ended: false,
            checking: None,
            reporting: None,
            guards,
        }
    }

    fn transform(&mut self, chunk: Bytes) -> Result<Bytes, RelayError> {
        self.mode.push(chunk, self.guards.turn.as_ref())
    }

    fn end(&mut self) -> Bytes {
        self.ended = true;
        match &mut self.mode {
            RelayMode::Json(rewriter) => rewriter.finish(),
            RelayMode::Events(events) => events.end(),
        }
    }

    /// An event stream that breaks ends with an error event where a call waits for its answer, at once or after a
    /// ping; anything else has no such place and is cut, which the client sees.
    fn broke(&mut self, error: BodyError) -> Result<Bytes, RelayError> {
        tracing::info!(%error, "an upstream's reply broke off");
        match &mut self.mode {
            RelayMode::Events(events) => {
                self.checking = events.ask_whether_resumable();
                Ok(match self.checking {
                    Some(_) => Bytes::new(),
                    None => self.fail(),
                })
            }
            RelayMode::Json(_) => {
                self.ended = true;
                Err(RelayError::Upstream(error))
            }
        }
    }

    /// What cannot be passed on ends an event stream with an error event, also where it could be resumed: resuming
    /// would meet the same event again.
    fn refused(&mut self, error: RelayError) -> Result<Bytes, RelayError> {
        tracing::warn!(%error, "an upstream's reply cannot be relayed");
        self.ended = true;
        match &self.mode {
            RelayMode::Events(_) => Ok(self.fail()),
            RelayMode::Json(_) => Err(error),
        }
    }

    /// Ends the stream with the error that the call may have run.
    fn fail(&mut self) -> Bytes {
        self.ended = true;
        match &mut self.mode {
            RelayMode::Events(events) => events.outcome_unknown(),
            RelayMode::Json(_) => Bytes::new(),
        }
    }

    fn poll_check(&mut self, context: &mut Context<'_>) -> Poll<Bytes> {
        let Some(checking) = &mut self.checking else {
            return Poll::Ready(Bytes::new());
        };
        let probe = std::task::ready!(checking.as_mut().poll(context));
        self.checking = None;
        Poll::Ready(match probe {
            ProbeResult::Alive => {
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
            if let Some((noting, _)) = &mut this.reporting {
                std::task::ready!(noting.as_mut().poll(context));
                let data = this.reporting.take().map(|(_, data)| data);
                return Poll::Ready(frame(data.unwrap_or_default()));
            }
            if this.checking.is_some() {
                let data = std::task::ready!(this.poll_check(context));
                return Poll::Ready(frame(data));
            }
            let Some(upstream) = &mut this.upstream else {
                break;
            };
            let data = match Pin::new(upstream).poll_frame(context) {
                Poll::Ready(Some(Ok(arrived))) => match arrived.into_data() {
                    Ok(chunk) => match this.transform(chunk) {
                        Ok(data) => data,
                        Err(error) => match this.refused(error) {
                            Ok(data) => data,
                            Err(error) => return Poll::Ready(Some(Err(error))),
                        },
                    },
                    Err(_trailers) => continue,
                },
                Poll::Ready(Some(Err(error))) => match this.broke(error) {
                    Ok(data) => data,
                    Err(error) => return Poll::Ready(Some(Err(error))),
                },
                Poll::Ready(None) => this.end(),
                Poll::Pending => match &mut this.mode {
                    RelayMode::Events(events) => {
                        this.ended = events.poll_stopping(context).is_ready();
                        if this.ended {
                            break;
                        }
                        std::task::ready!(events.poll_keep_alive(context))
                    }
                    RelayMode::Json(_) => return Poll::Pending,
                },
            };
            if data.is_empty() {
                continue;
            }
            match this.mode.note_reported() {
                Some(noting) => this.reporting = Some((noting, data)),
                None => return Poll::Ready(frame(data)),
            }
        }
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        self.ended
    }
}

/// A client that goes away has not cancelled its call: what is left of it is read for nobody.
impl Drop for Relay {
    fn drop(&mut self) {
        if self.ended || !self.mode.is_awaited() || self.guards.turn.is_none() {
            return;
        }
        let (Some(upstream), Ok(runtime)) =
            (self.upstream.take(), tokio::runtime::Handle::try_current())
        else {
            return;
        };
        let rest = AbandonedReply {
            upstream,
            mode: std::mem::replace(&mut self.mode, RelayMode::Json(StreamRewriter::new())),
            guards: std::mem::take(&mut self.guards),
        };
        runtime.spawn(rest.read());
    }
}
