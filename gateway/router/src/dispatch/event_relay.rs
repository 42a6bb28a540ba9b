//! The state of one event stream on its way to a client: what passes, what is answered here, and how it ends.
//!
//! Invariant: what belongs to no client of this stream does not pass, and a call whose answer can no longer come gets
//! an error that says so.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use mooring_session::rules::Ownership;
use mooring_session::view::BindingView;
use tokio::time::{Instant, Sleep};
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::RelayOptions;
use super::call_turn::CallTurn;
use crate::affinity::{RebindNotice, Session, SessionRouter};
use crate::pooled::ServerRequestResponder;
use mooring_protocol::event::{Event, EventError, comment};
use mooring_protocol::ids::{Epoch, Id, RequestOrigin};
use mooring_protocol::sse::{RewrittenEvent, SseRewriter, Verdict};
use mooring_protocol::{ErrorBody, ErrorKind, Kind, Marker, Rebound};
use mooring_upstream::complaints::Complaints;
use mooring_upstream::{ProbeResult, Server};

/// How long a stream may be silent before a comment keeps it open, well under the usual 60 s of proxies.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Notes in the store that a loss was reported.
pub(super) type ReportFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The state of an event stream.
pub(super) struct EventRelay {
    rewriter: SseRewriter,
    audience: Audience,
    complaints: Complaints,
    /// The call that this stream answers; none for a GET stream, which ends when the worker stops.
    pending_request: Option<PendingRequest>,
    /// Where the stream could be resumed; none for calls over shared sessions, which have no GET.
    origin: Option<StreamOrigin>,
    moved: Option<RebindNotice>,
    /// Whether the mark of the move has gone into a result.
    is_marked: bool,
    /// How many messages of the server's it had.
    messages: u64,
    keep_alive: Pin<Box<Sleep>>,
    stopping: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
}

/// Whose stream it is, and over which binding it comes.
#[derive(Debug)]
pub(super) struct StreamOrigin {
    pub(super) caller: Caller,
    pub(super) binding: BindingView,
}

/// Who has called, so that it can be asked whether the upstream session is still there.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Asks.
    pub router: SessionRouter,
    /// The session of the call.
    pub session: Session,
    /// The server that was called.
    pub server: Arc<Server>,
}

/// Who an upstream's messages are for.
#[derive(Debug)]
pub(super) enum Audience {
    /// One client, over the marker's binding.
    Bound(Marker),
    /// One call of one of several clients: what the server asks otherwise is for none of them, and is answered so.
    Shared(ServerRequestResponder),
}

impl Audience {
    /// What the ids of the server's requests are marked with.
    pub(super) fn marker(&self) -> Marker {
        match self {
            Self::Bound(marker) => marker.clone(),
            // Requests over a shared session do not pass, so no epoch is ever seen; no binding has epoch 0.
            Self::Shared(_) => Marker::of(Epoch(0)),
        }
    }
}

/// The request that a stream has to answer.
#[derive(Clone, Debug)]
pub struct PendingRequest {
    /// The client's id as the client wrote it.
    pub id_json: Box<str>,
}

impl Caller {
    /// A reply has told the client of this move.
    pub(super) async fn note_loss_reported(&self, moved: &RebindNotice) {
        self.router
            .note_loss_reported(&self.session, &self.server.id, moved)
            .await;
    }
}

impl EventRelay {
    pub(super) fn new(
        audience: Audience,
        options: &RelayOptions,
        pending_request: Option<PendingRequest>,
        origin: Option<StreamOrigin>,
        moved: Option<RebindNotice>,
    ) -> Self {
        Self {
            rewriter: SseRewriter::new(audience.marker(), options.event_bytes_max),
            stopping: pending_request
                .is_none()
                .then(|| Box::pin(options.stopping.clone().cancelled_owned())),
            audience,
            complaints: Complaints::default(),
            pending_request,
            origin,
            moved,
            is_marked: false,
            messages: 0,
            keep_alive: Box::pin(tokio::time::sleep(KEEP_ALIVE)),
        }
    }

    /// Passes a chunk on. `turn` is shown what the server says.
    pub(super) fn push(
        &mut self,
        chunk: &[u8],
        turn: Option<&CallTurn>,
    ) -> Result<Bytes, EventError> {
        let Self {
            rewriter,
            audience,
            complaints,
            pending_request,
            moved,
            is_marked,
            messages,
            keep_alive,
            ..
        } = self;
        keep_alive.as_mut().reset(Instant::now() + KEEP_ALIVE);
        let mark = moved.as_ref().map(RebindNotice::told);
        rewriter.push(chunk, |passing| {
            if let RewrittenEvent::Message { message, .. } = passing {
                *messages = messages.saturating_add(1);
                if let Some(turn) = turn {
                    turn.saw(message);
                }
            }
            let verdict = judge(
                passing,
                audience,
                complaints,
                pending_request,
                mark.as_ref(),
            );
            if let (Verdict::Mark(_), RewrittenEvent::Message { message, .. }) = (&verdict, passing)
            {
                *is_marked |= message.kind() == Kind::Result;
            }
            verdict
        })
    }

    /// Notes that the loss was reported, once the mark has gone into a result; none where there is nothing to note.
    pub(super) fn note_reported(&mut self) -> Option<ReportFuture> {
        let moved = self
            .moved
            .take_if(|moved| self.is_marked && moved.is_recorded)?;
        let caller = self.origin.as_ref()?.caller.clone();
        Some(Box::pin(
            async move { caller.note_loss_reported(&moved).await },
        ))
    }

    /// How many messages of the server's it had.
    pub(super) const fn messages(&self) -> u64 {
        self.messages
    }

    /// What the client is told first.
    pub(super) fn warning(&self) -> Option<Bytes> {
        self.moved
            .as_ref()
            .map(|moved| moved.told().warning_event())
    }

    /// Whether the answer is still to come, and nobody can come back for it on another stream, whose server would refuse
    /// that while this one is open.
    pub(super) fn is_awaited_to_the_end(&self) -> bool {
        let is_owned = (self.origin.as_ref())
            .is_some_and(|origin| origin.caller.server.ownership == Ownership::Owned);
        self.pending_request.is_some() && (is_owned || !self.rewriter.has_event_ids())
    }

    fn is_resumable(&self) -> bool {
        self.origin.is_some() && self.rewriter.has_event_ids()
    }

    pub(super) fn end(&mut self) -> Bytes {
        if self.is_resumable() {
            Bytes::new()
        } else {
            self.outcome_unknown()
        }
    }

    /// The error event for the call that waits, if one does.
    pub(super) fn outcome_unknown(&mut self) -> Bytes {
        let Some(pending_request) = self.pending_request.take() else {
            return Bytes::new();
        };
        let error = ErrorBody::new(ErrorKind::OutcomeUnknown)
            .answering(Id::from_json(&pending_request.id_json).ok())
            .to_bytes();
        let event = Event::message(&String::from_utf8_lossy(&error)).encode();
        if self.rewriter.is_between_events() {
            return event;
        }
        // The upstream's unfinished event must lend this one neither its id nor its type.
        [b"\n", event.as_ref()].concat().into()
    }

    /// Asks the instance whether it still knows the session, where somebody waits and could resume.
    pub(super) fn ask_whether_resumable(
        &mut self,
    ) -> Option<Pin<Box<dyn Future<Output = ProbeResult> + Send>>> {
        if self.pending_request.is_none() || !self.is_resumable() {
            return None;
        }
        let StreamOrigin { caller, binding } = self.origin.take()?;
        Some(Box::pin(async move {
            caller
                .router
                .probe(&caller.session, &caller.server, &binding)
                .await
        }))
    }

    /// Whether the worker stops and nothing but the stream itself is left to wait for.
    pub(super) fn poll_stopping(&mut self, context: &mut Context<'_>) -> Poll<()> {
        match &mut self.stopping {
            Some(stopping) => stopping.as_mut().poll(context),
            None => Poll::Pending,
        }
    }

    pub(super) fn poll_keep_alive(&mut self, context: &mut Context<'_>) -> Poll<Bytes> {
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
    passing: &RewrittenEvent<'_>,
    audience: &Audience,
    complaints: &mut Complaints,
    pending_request: &mut Option<PendingRequest>,
    mark: Option<&'v Rebound<'v>>,
) -> Verdict<'v> {
    match passing {
        RewrittenEvent::Message { message, down, .. } => {
            if message.kind() == Kind::Request
                && let Audience::Shared(responder) = audience
            {
                responder.answer(message);
                return Verdict::Drop;
            }
            if !message.kind().is_response() {
                return Verdict::Pass;
            }
            match &down.answers {
                Some(RequestOrigin::Client { id, .. }) => {
                    if pending_request.as_ref().is_some_and(|a| *a.id_json == **id) {
                        *pending_request = None;
                    }
                    mark.map_or(Verdict::Pass, Verdict::Mark)
                }
                Some(RequestOrigin::Nobody) => Verdict::Pass,
                Some(RequestOrigin::Gateway { .. } | RequestOrigin::Foreign) | None => {
                    Verdict::Drop
                }
            }
        }
        RewrittenEvent::OtherType { .. } => Verdict::Pass,
        RewrittenEvent::NotAMessage(error) => {
            complaints.add(
                "an upstream sent an event that is no message; it is dropped",
                error,
            );
            Verdict::Drop
        }
        RewrittenEvent::NotRewritable(error) => {
            complaints.add(
                "an upstream sent a message that cannot be passed on; it is dropped",
                error,
            );
            Verdict::Drop
        }
    }
}
