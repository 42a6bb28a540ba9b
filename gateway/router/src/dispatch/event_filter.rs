//! Filters the events of one upstream stream: which are relayed, which are answered here, and how the stream ends.
//!
//! Invariants: messages for no client of this stream are not relayed; a response is relayed only to the request that it
//! answers, and one that answers another request shows that the stream cannot be trusted any more; a call whose answer
//! can no longer arrive gets an error that says so. A dropped event still sets its id.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mooring_session::rules::Ownership;
use mooring_session::view::BindingView;

use crate::affinity::{RebindNotice, Session, SessionRouter, Turn};
use crate::pooled::ServerRequestResponder;
use crate::request_tag::StreamOwner;
use mooring_metrics as metrics;
use mooring_protocol::ids::{Epoch, Id};
use mooring_protocol::mark::{MarkPlace, STATE_LOST};
use mooring_protocol::rewrite::into_bytes;
use mooring_protocol::{
    ErrorBody, ErrorKind, Event, Kind, Marker, Message, Method, PendingRequest, RequestOrigin,
    Sender, mark, rewrite_down,
};
use mooring_settings::LostStateNotice;
use mooring_store::Family;
use mooring_traces::{Span, SpanKind, TraceScope, enter_scope};
use mooring_upstream::{
    ProbeResult, ReplySource as _, Server, describe_message, report_dropped_message,
};

/// How long the error of a call whose stream broke waits for what a ping shows of the upstream session.
const SHOWN_WITHIN: Duration = Duration::from_secs(2);

/// The log message for a response on a stream without a request.
const DROPPED_RESPONSE: &str = "dropped a response of an upstream";

/// Records in the store that a loss was reported.
pub(super) type ReportFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The filter state of one stream.
pub(super) struct EventFilter {
    audience: Audience,
    /// Whose requests its messages may refer to.
    owner: StreamOwner,
    kind: StreamKind,
    /// Whether a response to another request came.
    is_mismatched: bool,
    /// The mark on the ids of server-to-client requests.
    marker: Marker,
    /// The unanswered call of this stream; `None` for a GET stream.
    pending_request: Option<PendingRequest>,
    /// Where the stream can be resumed; `None` for calls over shared sessions, which have no GET.
    origin: Option<StreamOrigin>,
    moved: Option<RebindNotice>,
    /// Whether the rebind notice was put into a result.
    is_marked: bool,
    /// Whether an event had an id with which the stream can be resumed. The first such event is often an empty priming
    /// event (MCP 2025-11-25, transports).
    has_event_ids: bool,
    /// The span of the call.
    scope: Option<TraceScope>,
    /// That of a request to its client, until the call continues.
    question: Span,
}

/// The caller of a stream, and the binding over which it comes.
#[derive(Debug)]
pub(super) struct StreamOrigin {
    pub(super) caller: Caller,
    pub(super) binding: BindingView,
    /// Whether a loss counts as reported once the result has carried it.
    pub(super) reports_loss: bool,
}

/// A caller, for the check whether the upstream session still exists.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The router to check with.
    pub router: SessionRouter,
    /// The session of the call.
    pub session: Session,
    /// The called server.
    pub server: Arc<Server>,
}

/// What a stream may carry responses to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StreamKind {
    /// The one request that opened it.
    Call,
    /// Requests whose streams broke, and are resumed over it.
    Resumable,
}

/// The recipients of an upstream's messages.
#[derive(Debug)]
pub(super) enum Audience {
    /// One client, over the marker's binding.
    Bound(Marker),
    /// One call among several clients. Server-to-client requests belong to none of them and are answered here.
    Shared(ServerRequestResponder),
}

impl Audience {
    /// The mark on the ids of server-to-client requests.
    pub(super) fn marker(&self) -> Marker {
        match self {
            Self::Bound(marker) => marker.clone(),
            // Such requests are not relayed over a shared session, so the epoch is never used; no binding has epoch 0.
            Self::Shared(_) => Marker::of(Epoch(0)),
        }
    }
}

impl Caller {
    /// Closes the connections to the instance of a binding, over one of which came the reply to another request.
    pub(super) fn distrust_connections(&self, binding: &BindingView) {
        let source = self.router.reply_source(&self.server, binding);
        source.distrust();
    }

    /// Records that a reply has reported this move.
    pub(super) async fn note_loss_reported(&self, moved: &RebindNotice) {
        self.router
            .note_loss_reported(&self.session, &self.server.id, moved)
            .await;
    }
}

impl EventFilter {
    pub(super) fn new(
        audience: Audience,
        owner: StreamOwner,
        pending_request: Option<PendingRequest>,
        origin: Option<StreamOrigin>,
        moved: Option<RebindNotice>,
    ) -> Self {
        Self {
            marker: audience.marker(),
            audience,
            owner,
            kind: match pending_request {
                Some(_) => StreamKind::Call,
                None => StreamKind::Resumable,
            },
            is_mismatched: false,
            pending_request,
            origin,
            moved,
            is_marked: false,
            has_event_ids: false,
            scope: TraceScope::current(),
            question: Span::default(),
        }
    }

    /// The event for the client, if any. `turn` is updated by the server's messages.
    pub(super) fn pass(&mut self, event: Event, turn: Option<&Turn>) -> Option<Event> {
        self.has_event_ids |= event.id.as_deref().is_some_and(|id| !id.is_empty());
        let Some(text) = event.as_message() else {
            return Some(event);
        };
        let data = self.pass_message(text, turn);
        let passed = Event { data, ..event };
        let says_something =
            passed.data.is_some() || passed.id.is_some() || passed.retry_ms.is_some();
        says_something.then_some(passed)
    }

    /// Begins or ends the span of a request to the client. Servers ping at intervals, whatever their calls do.
    fn trace_question(&mut self, message: &Message<'_>) {
        let Some(scope) = self.scope.as_ref().filter(|scope| scope.is_sampled()) else {
            return;
        };
        if message.kind() != Kind::Request {
            self.question = Span::default();
        } else if message.method() != Method::Ping {
            let begin = || Span::begin("request to client", SpanKind::Client);
            self.question = enter_scope(Some(scope.clone()), begin);
            describe_message(&mut self.question, message);
        }
    }

    /// The message as the client gets it; `None` if it is not for the client.
    fn pass_message(&mut self, text: &Bytes, turn: Option<&Turn>) -> Option<Bytes> {
        let message = match Message::parse(text, Sender::Upstream) {
            Ok(message) => message,
            Err(error) => {
                let what = "an upstream sent an event that is no message; it is dropped";
                report_dropped_message(what, error);
                return None;
            }
        };
        if let Some(turn) = turn {
            turn.saw(&message);
        }
        let down = match rewrite_down(&message, &self.marker) {
            Ok(down) => down,
            Err(error) => {
                let what = "dropped a message of an upstream that cannot be relayed";
                report_dropped_message(what, error);
                return None;
            }
        };
        if let Audience::Shared(responder) = &self.audience
            && message.kind() == Kind::Request
        {
            responder.answer(&message);
            return None;
        }
        if let Some(StreamOrigin { caller, .. }) = &self.origin {
            (caller.router).note_question(&caller.session, &caller.server.id, &message);
        }
        self.trace_question(&message);
        match &down.answers {
            Some(origin) if message.kind().is_response() => {
                if !self.take_answered(origin) {
                    return None;
                }
                let marked = (self.moved.as_ref()).and_then(|moved| {
                    mark::mark_result(&down.text, &moved.to_mark(), self.mark_place())
                });
                self.is_marked |= marked.is_some();
                Some(marked.map_or_else(|| into_bytes(down.text, text), Bytes::from))
            }
            // Progress of another client's request.
            Some(origin) if origin.is_known() && !self.owner.owns(origin) => {
                let what = "dropped an upstream's progress notification";
                report_dropped_message(what, "its token is not of this session");
                None
            }
            _ => Some(into_bytes(down.text, text)),
        }
    }

    /// Where a result tells of the loss. Code takes contents for data; its run tells of the loss.
    fn mark_place(&self) -> MarkPlace {
        let caller = self.origin.as_ref().map(|origin| &origin.caller);
        match caller {
            Some(caller)
                if caller.session.key.family() == Family::Mcp
                    && caller.server.lost_state_notice == LostStateNotice::Content =>
            {
                MarkPlace::Content
            }
            _ => MarkPlace::Meta,
        }
    }

    /// Whether a response of this origin may be relayed: to the pending request, which it answers, or on a resumed
    /// stream to any request of the session.
    fn take_answered(&mut self, origin: &RequestOrigin<'_>) -> bool {
        let is_pending = |pending: &mut PendingRequest| pending.is_answered(origin);
        let is_relayed = match self.kind {
            StreamKind::Call => self.pending_request.take_if(is_pending).is_some(),
            StreamKind::Resumable => self.owner.owns(origin),
        };
        // A replay may contain responses to unknown requests or to a gateway's own.
        let is_harmless =
            self.kind == StreamKind::Resumable && !matches!(origin, RequestOrigin::Client { .. });
        if !is_relayed && is_harmless {
            report_dropped_message(DROPPED_RESPONSE, "no client of this session waits for it");
        } else if !is_relayed {
            metrics::reply_mismatched(metrics::ReplySource::Upstream);
            let what = "an upstream's stream has a response to another request; it is closed";
            report_dropped_message(what, "its id is not that of the request");
            self.is_mismatched = true;
            match (&self.audience, &self.origin) {
                // It may be the server's own error, and not another client's reply.
                _ if !origin.is_known() => {}
                (Audience::Shared(responder), _) => responder.distrust_connections(),
                (_, Some(origin)) => origin.caller.distrust_connections(&origin.binding),
                // Dropped unread, the stream closes its connection.
                (_, None) => {}
            }
        }
        is_relayed
    }

    /// Whether a response to another request came. Nothing more of the stream may be relayed.
    pub(super) const fn is_mismatched(&self) -> bool {
        self.is_mismatched
    }

    /// Records the report of the loss, once the notice is in a result; `None` if there is nothing to record.
    pub(super) fn note_reported(&mut self) -> Option<ReportFuture> {
        let origin = self.origin.as_ref()?;
        let moved = self
            .moved
            .take_if(|_| self.is_marked && origin.reports_loss)?;
        let caller = origin.caller.clone();
        Some(Box::pin(
            async move { caller.note_loss_reported(&moved).await },
        ))
    }

    /// The first event for the client.
    pub(super) fn warning(&self) -> Option<Event> {
        let moved = self.moved.as_ref();
        moved.map(|moved| moved.to_mark().warning_event())
    }

    /// Whether a call on this stream is unanswered.
    pub(super) const fn has_pending_request(&self) -> bool {
        self.pending_request.is_some()
    }

    /// Whether to read on after a disconnect: the answer is outstanding, and reading does not conflict with a resume,
    /// which an instance over HTTP would refuse while this stream is open.
    pub(super) fn reads_on_after_disconnect(&self) -> bool {
        let is_owned = (self.origin.as_ref())
            .is_some_and(|origin| origin.caller.server.ownership == Ownership::Owned);
        self.pending_request.is_some() && (is_owned || !self.has_event_ids)
    }

    /// Whether the client can resume the stream.
    pub(super) const fn is_resumable(&self) -> bool {
        self.origin.is_some() && self.has_event_ids
    }

    /// The error event for the unanswered call, if there is one. It says so if the probe has shown that the upstream
    /// session is lost.
    pub(super) fn outcome_unknown(&mut self, probe: ProbeResult) -> Option<Event> {
        let pending_request = self.pending_request.take()?;
        if let Some(StreamOrigin { caller, .. }) = &self.origin {
            (caller.router).note_outcome_unknown(&caller.session, &caller.server.id);
        }
        let error = ErrorBody::new(ErrorKind::OutcomeUnknown)
            .answering(Id::from_json(&pending_request.id_json).ok());
        let error = match probe {
            ProbeResult::SessionLost | ProbeResult::InstanceLost => error.detail(STATE_LOST),
            ProbeResult::Alive | ProbeResult::Unclear => error,
        };
        Some(Event::message(error.to_bytes()))
    }

    /// The error event for the unanswered call of a stream that is not trusted any more, if there is one.
    pub(super) fn invalid_reply(&mut self) -> Option<Event> {
        let pending_request = self.pending_request.take()?;
        let error = ErrorBody::new(ErrorKind::OutcomeUnknown)
            .answering(Id::from_json(&pending_request.id_json).ok())
            .detail("the server answered another request");
        Some(Event::message(error.to_bytes()))
    }

    /// Pings the instance to check whether it knows the session, if a client waits. A client that cannot resume waits
    /// only [`SHOWN_WITHIN`] for that.
    pub(super) fn check_session(
        &self,
    ) -> Option<Pin<Box<dyn Future<Output = ProbeResult> + Send>>> {
        self.pending_request.as_ref()?;
        let origin = self.origin.as_ref()?;
        let (caller, binding) = (origin.caller.clone(), origin.binding.clone());
        let within = match self.is_resumable() {
            true => caller.router.options().answer_timeout,
            false => SHOWN_WITHIN,
        };
        Some(Box::pin(async move {
            let probe = caller
                .router
                .probe(&caller.session, &caller.server, &binding);
            let probe = tokio::time::timeout(within, probe).await;
            probe.unwrap_or(ProbeResult::Unclear)
        }))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;
    use mooring_protocol::RequestTag;

    const EPOCH: Epoch = Epoch(4);
    const TAG: RequestTag = RequestTag(10);

    fn pending(id_json: &str) -> PendingRequest {
        PendingRequest {
            id_json: id_json.into(),
            tag: TAG,
        }
    }
    const PING: &str = r#"{"id":1,"method":"ping"}"#;

    fn filter(id_json: Option<&str>, moved: Option<RebindNotice>) -> EventFilter {
        let pending_request = id_json.map(pending);
        let audience = Audience::Bound(Marker::of(EPOCH));
        EventFilter::new(
            audience,
            StreamOwner::Request(TAG),
            pending_request,
            None,
            moved,
        )
    }

    fn numbered(data: &'static str) -> Event {
        Event {
            id: Some("3".into()),
            ..Event::message(data)
        }
    }

    #[test]
    fn data_is_rewritten_and_other_fields_are_kept() {
        let mut filter = filter(Some("7"), None);
        for (event, expected) in [
            (
                numbered(
                    "{\"id\":\"c:0000000000000000000000000000000a:7\",\n\"result\":{}, \"x\": 1.0e0}",
                ),
                numbered("{\"id\":7,\n\"result\":{}, \"x\": 1.0e0}"),
            ),
            (
                Event::message(PING),
                Event::message(r#"{"id":"s:4:1","method":"ping"}"#),
            ),
            (numbered(""), numbered("")),
        ] {
            assert_eq!(filter.pass(event, None), Some(expected));
        }
        let of_another_type = Event {
            event: Some("endpoint".into()),
            ..Event::message("/messages?x")
        };
        assert_eq!(
            filter.pass(of_another_type.clone(), None),
            Some(of_another_type)
        );
        assert!(!filter.has_pending_request());
    }

    #[test]
    fn a_dropped_event_leaves_only_its_id() {
        for data in [
            "garbage",
            "[]",
            r#"{"id":1.5,"method":"a"}"#,
            r#"{"id":1,"id":2,"method":"a"}"#,
            r#"{"id":"g:1","result":{}}"#,
        ] {
            let mut filter = filter(Some("7"), None);
            assert_eq!(filter.pass(Event::message(data), None), None, "{data}");
            let id_alone = Event {
                id: Some("3".into()),
                ..Event::default()
            };
            assert_eq!(filter.pass(numbered(data), None), Some(id_alone), "{data}");
            assert!(filter.has_pending_request(), "{data}");
        }
    }

    #[test]
    fn a_mark_is_put_into_the_answer() {
        let moved = RebindNotice {
            from: "a".into(),
            to: "b".into(),
            epoch: EPOCH.0,
            reason: "upstream".into(),
        };
        let mark = moved.to_mark().to_json();
        let mut filter = filter(Some("7"), Some(moved));
        assert!(filter.warning().is_some());
        let notification = Event::message(r#"{"method":"x"}"#);
        assert_eq!(filter.pass(notification.clone(), None), Some(notification));
        let answer = Event::message(r#"{"id":"c:0000000000000000000000000000000a:7","result":{}}"#);
        let marked = format!(r#"{{"id":7,"result":{{"_meta":{{"mooring/rebound":{mark}}}}}}}"#);
        assert_eq!(filter.pass(answer, None), Some(Event::message(marked)));
    }

    #[test]
    fn any_event_id_makes_a_stream_resumable() {
        for (id, data, expected) in [
            (Some("0/1"), Some(""), true),
            (Some("0/1"), None, true),
            (Some("0/1"), Some(PING), true),
            (Some(""), Some(""), false),
            (None, Some(PING), false),
        ] {
            let mut filter = filter(None, None);
            let event = Event {
                id: id.map(Into::into),
                data: data.map(Bytes::from),
                ..Event::default()
            };
            filter.pass(event, None);
            assert_eq!(filter.has_event_ids, expected, "{id:?} {data:?}");
        }
    }
}
