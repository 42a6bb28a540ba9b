//! Relays the body of an upstream's reply to the client while it arrives.
//!
//! Invariant: memory is bounded by one event, or by what arrives of a JSON reply before its id, which its reader holds at
//! the expense of its user. A reply to another request is not forwarded to any client: its connection is closed, and
//! the caller gets an error. A call whose stream ends without its answer gets an error that says so, unless the stream
//! has event ids with which the client can resume it. If a stream breaks, a ping shows whether the upstream session
//! still exists: otherwise it cannot be resumed, and the error says that its state is lost.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use mooring_session::names::{InstanceName, ServerName};
use tokio::time::Instant;
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::abandoned::{self, UnreadReply};
use super::event_filter::{EventFilter, ReportFuture};
use crate::affinity::{InFlight, StreamHold, Turn};
use crate::departure::Departure;
use crate::in_flight_requests::InFlightRequest;
use mooring_metrics as metrics;
use mooring_protocol::held::held_bytes;
use mooring_protocol::{
    ByteStream, Event, EventStream, PendingRequest, ReplyError, StreamError, StreamRewriter,
};
use mooring_upstream::ProbeResult;
use mooring_usage::{CallPermit, HeldMemory, SHORT_BYTES_MAX};

/// How long the answer to a cancelled call is relayed at least. Servers need not answer it (MCP 2025-11-25, cancellation), and
/// the stream would stay open for as long as both peers live.
const CANCELLED_FOR: Duration = Duration::from_secs(30);

/// Guards that last until the reply ends.
#[derive(Debug, Default)]
pub struct ReplyGuards {
    /// Keeps the session alive and its binding counted.
    pub in_flight: Option<InFlight>,
    /// Keeps the session's stream with this gateway.
    pub stream: Option<StreamHold>,
    /// The call's turn.
    pub turn: Option<Turn>,
    /// The client's request, until it is answered.
    pub request: Option<InFlightRequest>,
    /// Counts the call among those of its user.
    pub call: Option<Arc<CallPermit>>,
    /// Where the reply comes from; none over a shared session.
    pub source: Option<UpstreamSource>,
}

/// Where a reply comes from, for the log.
#[derive(Clone, Debug)]
pub struct UpstreamSource {
    /// The digest of the session that it is in.
    pub session: Arc<str>,
    /// The server.
    pub server: ServerName,
    /// The instance.
    pub instance: InstanceName,
}

impl ReplyGuards {
    /// Logs that a reply broke before its end.
    fn log_broken(&self, error: &ReplyError) {
        let source = self.source.as_ref();
        tracing::info!(
            session = source.map(|source| &*source.session),
            server = source.map(|source| source.server.as_str()),
            instance = source.map(|source| source.instance.as_str()),
            %error,
            "an upstream's reply broke"
        );
    }

    /// The client no longer waits, and may still cancel its request.
    fn disconnect(&mut self) {
        if let Some(request) = self.request.take() {
            request.disconnect();
        }
    }
}

/// A single JSON message that answers the client's request, with the client's id restored.
pub(super) struct JsonRelay {
    /// `None` once it has ended or was given to [`abandoned::read`].
    upstream: Option<ByteStream>,
    rewriter: StreamRewriter,
    guards: ReplyGuards,
    /// The memory of what was withheld, until all is relayed.
    held: Option<HeldMemory>,
}

impl JsonRelay {
    /// Reads up to the id of the reply, which has to be that of the request and begin within `message_bytes_max`.
    pub(super) async fn open(
        upstream: ByteStream,
        request: PendingRequest,
        guards: ReplyGuards,
        message_bytes_max: usize,
        held: Option<HeldMemory>,
    ) -> Result<Self, ReplyError> {
        let mut relay = Self {
            upstream: Some(upstream),
            rewriter: StreamRewriter::new(request, message_bytes_max),
            guards,
            held,
        };
        while !relay.rewriter.is_verified() && relay.upstream.is_some() {
            poll_fn(|context| relay.poll_receive(context)).await?;
            let withheld = relay.rewriter.received_bytes();
            // The rest waits in its connection until there is room for the longest reply.
            if withheld > SHORT_BYTES_MAX
                && let Some(held) = relay.held.as_mut().filter(|held| held.bytes() == 0)
            {
                held.grow(message_bytes_max).await?;
            }
        }
        let withheld = relay.rewriter.received_bytes();
        if let Some(held) = &mut relay.held {
            held.shrink_to(withheld);
        }
        Ok(relay)
    }

    /// The reply as it was read whole, with its memory, if its id came last.
    pub(super) fn take_whole(&mut self) -> Option<Bytes> {
        if self.upstream.is_some() {
            return None;
        }
        let chunks: Vec<Bytes> = std::iter::from_fn(|| self.rewriter.next_chunk()).collect();
        let whole = match chunks.as_slice() {
            [whole] => whole.clone(),
            chunks => Bytes::from(chunks.concat()),
        };
        let held = self.held.take().filter(|held| held.bytes() > 0);
        Some(held_bytes(whole, held.map(Arc::new).as_ref()))
    }

    /// Takes the next chunk of the body, or its end.
    fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<Result<(), ReplyError>> {
        let Some(upstream) = &mut self.upstream else {
            return Poll::Ready(Ok(()));
        };
        let received = match ready!(upstream.as_mut().poll_next(context)) {
            Some(chunk) => {
                chunk.and_then(|chunk| self.rewriter.push(chunk).map_err(ReplyError::from))
            }
            None => {
                self.upstream = None;
                self.rewriter.finish().map_err(ReplyError::from)
            }
        };
        if let Err(error) = &received {
            note_mismatch(error);
            self.upstream = None;
        }
        Poll::Ready(received)
    }
}

/// Counts a reply to another request.
pub(super) fn note_mismatch(error: &ReplyError) {
    if let ReplyError::Json(StreamError::OtherRequest) = error {
        metrics::reply_mismatched(metrics::ReplySource::Upstream);
    }
}

impl Stream for JsonRelay {
    type Item = Result<Bytes, ReplyError>;

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, ReplyError>>> {
        loop {
            if let Some(chunk) = self.rewriter.next_chunk() {
                return Poll::Ready(Some(Ok(chunk)));
            }
            if self.upstream.is_none() {
                return Poll::Ready(None);
            }
            // The client sees a truncated reply.
            if let Err(error) = ready!(self.poll_receive(context)) {
                self.guards.log_broken(&error);
                return Poll::Ready(Some(Err(error)));
            }
        }
    }
}

/// A disconnect does not cancel a call: the rest of the reply is read until the call is answered.
impl Drop for JsonRelay {
    fn drop(&mut self) {
        if let Some(upstream) = self.upstream.take() {
            let mut guards = std::mem::take(&mut self.guards);
            guards.disconnect();
            abandoned::read(UnreadReply::Json(upstream), guards);
        }
    }
}

/// Events for a client.
pub(super) struct EventRelay {
    /// `None` once it has ended or was given to [`abandoned::read`].
    upstream: Option<(EventStream, Box<EventFilter>)>,
    /// Sent before all events of the upstream.
    first: Option<Event>,
    /// The running ping after the stream broke.
    checking: Option<Pin<Box<dyn Future<Output = ProbeResult> + Send>>>,
    /// The event that reports a loss, sent only after the report is recorded, so that the next call does not repeat it.
    reporting: Option<(ReportFuture, Event)>,
    began: Instant,
    /// Ends a stream without an unanswered call when the gateway stops.
    stopping: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    guards: ReplyGuards,
}

impl EventRelay {
    pub(super) fn new(
        upstream: EventStream,
        filter: EventFilter,
        guards: ReplyGuards,
        departure: &Departure,
    ) -> Self {
        Self {
            first: filter.warning(),
            checking: None,
            reporting: None,
            stopping: (!filter.has_pending_request())
                .then(|| Box::pin(departure.draining().cancelled_owned())),
            upstream: Some((upstream, Box::new(filter))),
            began: Instant::now(),
            guards,
        }
    }

    /// Whether the answer is not awaited any longer, because the call was cancelled. A silent stream is polled for each of
    /// its client's keep-alive comments.
    fn is_given_up(&self) -> bool {
        let request = self.guards.request.as_ref();
        self.began.elapsed() >= CANCELLED_FOR
            && request.is_some_and(|request| request.was_cancelled(CANCELLED_FOR))
    }

    /// Ends the stream with the error that the call may have run, if a call is unanswered.
    fn fail(&mut self, probe: ProbeResult) -> Option<Event> {
        let (_, mut filter) = self.upstream.take()?;
        filter.outcome_unknown(probe)
    }

    /// The last event for the client when the upstream's events end.
    fn end(&mut self) -> Option<Event> {
        let (_, filter) = self.upstream.as_ref()?;
        if filter.is_resumable() {
            // The client resumes it, and may cancel it meanwhile.
            self.guards.disconnect();
            self.upstream = None;
            return None;
        }
        self.fail(ProbeResult::Unclear)
    }

    /// If a call is unanswered, a broken stream ends after a ping: with an error event, unless the client can resume it. A
    /// stream that cannot be relayed is not resumed, because the same event would be repeated.
    fn broke(&mut self, error: &ReplyError) -> Option<Event> {
        let (_, filter) = self.upstream.as_mut()?;
        if let ReplyError::Broken(_) = error {
            match filter.has_pending_request() {
                true => self.guards.log_broken(error),
                // Such a stream ends with its upstream session.
                false => tracing::debug!(%error, "a stream of an upstream broke"),
            }
            self.checking = filter.check_session();
            if self.checking.is_some() {
                return None;
            }
        } else {
            tracing::warn!(%error, "an upstream's reply cannot be relayed");
        }
        self.fail(ProbeResult::Unclear)
    }

    /// Polls the ping; ready with the last event of the stream.
    fn poll_check(&mut self, context: &mut Context<'_>) -> Poll<Option<Event>> {
        let Some(checking) = &mut self.checking else {
            return Poll::Ready(None);
        };
        let probe = ready!(checking.as_mut().poll(context));
        self.checking = None;
        let is_resumable =
            (self.upstream.as_ref()).is_some_and(|(_, filter)| filter.is_resumable());
        if probe == ProbeResult::Alive && is_resumable {
            self.upstream = None;
        }
        Poll::Ready(self.fail(probe))
    }

    /// Whether no call on this stream is unanswered.
    fn is_answered(&self) -> bool {
        let upstream = self.upstream.as_ref();
        upstream.is_none_or(|(_, filter)| !filter.has_pending_request())
    }

    /// The next relayed event, or the last event of the stream. `None` if the next event must be polled or the stream
    /// has ended.
    fn poll_upstream(&mut self, context: &mut Context<'_>) -> Poll<Option<Event>> {
        let Some((events, filter)) = &mut self.upstream else {
            return Poll::Ready(None);
        };
        let event = match events.as_mut().poll_next(context) {
            Poll::Ready(Some(Ok(event))) => {
                let event = filter.pass(event, self.guards.turn.as_ref());
                if filter.is_mismatched() {
                    let ended = filter.invalid_reply();
                    self.upstream = None;
                    return Poll::Ready(ended);
                }
                event
            }
            Poll::Ready(Some(Err(error))) => return Poll::Ready(self.broke(&error)),
            Poll::Ready(None) => return Poll::Ready(self.end()),
            Poll::Pending if self.is_given_up() => {
                self.upstream = None;
                return Poll::Ready(None);
            }
            Poll::Pending => {
                if let Some(stopping) = &mut self.stopping {
                    ready!(stopping.as_mut().poll(context));
                    self.upstream = None;
                    return Poll::Ready(None);
                }
                return Poll::Pending;
            }
        };
        let Some(event) = event else {
            return Poll::Ready(None);
        };
        Poll::Ready(match filter.note_reported() {
            Some(noting) => {
                self.reporting = Some((noting, event));
                None
            }
            None => Some(event),
        })
    }
}

impl Stream for EventRelay {
    type Item = Result<Event, ReplyError>;

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Event, ReplyError>>> {
        let this = &mut *self;
        if let Some(first) = this.first.take() {
            return Poll::Ready(Some(Ok(first)));
        }
        loop {
            let event = if let Some((noting, _)) = &mut this.reporting {
                ready!(noting.as_mut().poll(context));
                this.reporting.take().map(|(_, event)| event)
            } else if this.checking.is_some() {
                ready!(this.poll_check(context))
            } else if this.upstream.is_some() {
                ready!(this.poll_upstream(context))
            } else {
                return Poll::Ready(None);
            };
            if let Some(event) = event {
                if this.is_answered() {
                    // The server may leave the stream open.
                    this.guards.turn = None;
                    this.guards.request = None;
                }
                return Poll::Ready(Some(Ok(event)));
            }
        }
    }
}

/// A disconnect does not cancel a call: the rest of the reply is read until the call is answered.
impl Drop for EventRelay {
    fn drop(&mut self) {
        if let Some((events, filter)) = self.upstream.take() {
            let mut guards = std::mem::take(&mut self.guards);
            guards.disconnect();
            abandoned::read(UnreadReply::Events(events, filter), guards);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use futures_util::{StreamExt as _, stream};

    use super::super::event_filter::Audience;
    use super::*;
    use crate::in_flight_requests::{InFlightRequests, RequestScope};
    use crate::request_tag::StreamOwner;
    use mooring_protocol::ids::Epoch;
    use mooring_protocol::{Lane, Marker, RequestTag};

    /// A call's stream whose server is silent.
    fn silent(requests: &InFlightRequests) -> (EventRelay, RequestScope) {
        let pending_request = PendingRequest {
            id_json: "1".into(),
            tag: RequestTag(10),
        };
        let scope = RequestScope::Pooled(Lane(1));
        let request = requests.begin(scope.clone(), pending_request.clone());
        let audience = Audience::Bound(Marker::of(Epoch(1)));
        let owner = StreamOwner::Request(request.tag());
        let filter = EventFilter::new(audience, owner, Some(pending_request), None, None);
        let guards = ReplyGuards {
            request: Some(request),
            ..ReplyGuards::default()
        };
        let departure = Departure::default();
        let silent = Box::pin(stream::pending());
        (EventRelay::new(silent, filter, guards, &departure), scope)
    }

    #[tokio::test(start_paused = true)]
    async fn the_stream_of_a_cancelled_call_ends_although_its_server_says_nothing() {
        let requests = InFlightRequests::default();
        let (mut relay, scope) = silent(&requests);
        let mut next_within = async |limit| tokio::time::timeout(limit, relay.next()).await;
        assert!(
            next_within(CANCELLED_FOR * 3).await.is_err(),
            "it is not cancelled"
        );
        assert_eq!(requests.cancel(&scope, "1"), Some(RequestTag(10)));
        assert!(
            next_within(CANCELLED_FOR / 2).await.is_err(),
            "it may answer"
        );
        assert!(matches!(next_within(CANCELLED_FOR).await, Ok(None)));
        assert!(relay.upstream.is_none(), "its connection is closed");
    }

    #[tokio::test]
    async fn an_answered_call_has_no_turn_while_its_stream_is_open() {
        let events = [
            r#"{"jsonrpc":"2.0","method":"notifications/progress"}"#,
            r#"{"jsonrpc":"2.0","id":"c:0000000000000000000000000000000a:1","result":{}}"#,
        ];
        let events = events.map(|text| Ok(Event::message(text)));
        let open = stream::iter(events).chain(stream::pending());
        let tag = RequestTag(10);
        let id_json = "1".into();
        let pending_request = PendingRequest { id_json, tag };
        let audience = Audience::Bound(Marker::of(Epoch(1)));
        let owner = StreamOwner::Request(tag);
        let filter = EventFilter::new(audience, owner, Some(pending_request), None, None);
        let guards = ReplyGuards {
            turn: Some(Turn::watched().0),
            ..ReplyGuards::default()
        };
        let departure = Departure::default();
        let mut relay = EventRelay::new(Box::pin(open), filter, guards, &departure);
        relay.next().await.unwrap().unwrap();
        assert!(relay.guards.turn.is_some(), "the call runs");
        relay.next().await.unwrap().unwrap();
        assert!(relay.guards.turn.is_none(), "the call was answered");
    }
}
