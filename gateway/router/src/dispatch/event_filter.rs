//! What of one event stream passes to its client, what is answered here, and how the stream ends.
//!
//! Invariant: what belongs to no client of this stream does not pass, and a call whose answer can no longer come gets
//! an error that says so. A dropped event still sets its id.

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use mooring_session::rules::Ownership;
use mooring_session::view::BindingView;

use super::call_turn::CallTurn;
use crate::affinity::{RebindNotice, Session, SessionRouter};
use crate::pooled::ServerRequestResponder;
use mooring_protocol::ids::{Epoch, Id, RequestOrigin};
use mooring_protocol::rewrite::into_bytes;
use mooring_protocol::{
    ErrorBody, ErrorKind, Event, Kind, Marker, Message, Sender, mark, rewrite_down,
};
use mooring_upstream::complaints::Complaints;
use mooring_upstream::{ProbeResult, Server};

/// Notes in the store that a loss was reported.
pub(super) type ReportFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What decides about the events of one stream.
pub(super) struct EventFilter {
    audience: Audience,
    /// What the ids of the server's requests are marked with.
    marker: Marker,
    complaints: Complaints,
    /// The call that this stream answers; none for a GET stream, and once it is answered.
    pending_request: Option<PendingRequest>,
    /// Where the stream could be resumed; none for calls over shared sessions, which have no GET.
    origin: Option<StreamOrigin>,
    moved: Option<RebindNotice>,
    /// Whether the mark of the move has gone into a result.
    is_marked: bool,
    /// Whether an event named an id by which the stream can be resumed. The first one to do so is often empty: it primes
    /// the client (MCP 2025-11-25, transports).
    has_event_ids: bool,
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

impl EventFilter {
    pub(super) fn new(
        audience: Audience,
        pending_request: Option<PendingRequest>,
        origin: Option<StreamOrigin>,
        moved: Option<RebindNotice>,
    ) -> Self {
        Self {
            marker: audience.marker(),
            audience,
            complaints: Complaints::default(),
            pending_request,
            origin,
            moved,
            is_marked: false,
            has_event_ids: false,
        }
    }

    /// What of an event goes to the client. `turn` is shown what the server says.
    pub(super) fn pass(&mut self, event: Event, turn: Option<&CallTurn>) -> Option<Event> {
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

    /// The message as the client will see it; none where it is not for it.
    fn pass_message(&mut self, text: &Bytes, turn: Option<&CallTurn>) -> Option<Bytes> {
        let message = match Message::parse(text, Sender::Upstream) {
            Ok(message) => message,
            Err(error) => {
                let what = "an upstream sent an event that is no message; it is dropped";
                self.complaints.add(what, error);
                return None;
            }
        };
        if let Some(turn) = turn {
            turn.saw(&message);
        }
        let down = match rewrite_down(&message, &self.marker) {
            Ok(down) => down,
            Err(error) => {
                let what = "an upstream sent a message that cannot be passed on; it is dropped";
                self.complaints.add(what, error);
                return None;
            }
        };
        if let Audience::Shared(responder) = &self.audience
            && message.kind() == Kind::Request
        {
            responder.answer(&message);
            return None;
        }
        match &down.answers {
            Some(RequestOrigin::Client { id, .. }) if message.kind().is_response() => {
                self.pending_request
                    .take_if(|pending| *pending.id_json == **id);
                let marked = (self.moved.as_ref())
                    .and_then(|moved| mark::mark_result(&down.text, &moved.told()));
                self.is_marked |= marked.is_some();
                Some(marked.map_or_else(|| into_bytes(down.text, text), Bytes::from))
            }
            None | Some(RequestOrigin::Gateway { .. } | RequestOrigin::Foreign)
                if message.kind().is_response() =>
            {
                None
            }
            _ => Some(into_bytes(down.text, text)),
        }
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

    /// What the client is told first.
    pub(super) fn warning(&self) -> Option<Event> {
        let moved = self.moved.as_ref();
        moved.map(|moved| moved.told().warning_event())
    }

    /// Whether a call waits for its answer on this stream.
    pub(super) const fn has_pending_request(&self) -> bool {
        self.pending_request.is_some()
    }

    /// Whether the answer is still to come, and nobody can come back for it on another stream, whose server would refuse
    /// that while this one is open.
    pub(super) fn is_awaited_to_the_end(&self) -> bool {
        let is_owned = (self.origin.as_ref())
            .is_some_and(|origin| origin.caller.server.ownership == Ownership::Owned);
        self.pending_request.is_some() && (is_owned || !self.has_event_ids)
    }

    /// Whether the client can resume the stream.
    pub(super) const fn is_resumable(&self) -> bool {
        self.origin.is_some() && self.has_event_ids
    }

    /// The error event for the call that waits, if one does.
    pub(super) fn outcome_unknown(&mut self) -> Option<Event> {
        let pending_request = self.pending_request.take()?;
        let error = ErrorBody::new(ErrorKind::OutcomeUnknown)
            .answering(Id::from_json(&pending_request.id_json).ok());
        Some(Event::message(error.to_bytes()))
    }

    /// Asks the instance whether it still knows the session, where a client waits and could resume.
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
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    const EPOCH: Epoch = Epoch(4);
    const PING: &str = r#"{"id":1,"method":"ping"}"#;

    fn filter(id_json: Option<&str>, moved: Option<RebindNotice>) -> EventFilter {
        let pending_request = id_json.map(|id| PendingRequest { id_json: id.into() });
        let audience = Audience::Bound(Marker::of(EPOCH));
        EventFilter::new(audience, pending_request, None, moved)
    }

    fn numbered(data: &'static str) -> Event {
        Event {
            id: Some("3".into()),
            ..Event::message(data)
        }
    }

    #[test]
    fn the_data_is_rewritten_and_the_rest_passes() {
        let mut filter = filter(Some("7"), None);
        for (event, expected) in [
            (
                numbered("{\"id\":\"c:7\",\n\"result\":{}, \"x\": 1.0e0}"),
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
            is_recorded: false,
        };
        let mark = moved.told().to_json();
        let mut filter = filter(Some("7"), Some(moved));
        assert!(filter.warning().is_some());
        let notification = Event::message(r#"{"method":"x"}"#);
        assert_eq!(filter.pass(notification.clone(), None), Some(notification));
        let answer = Event::message(r#"{"id":"c:7","result":{}}"#);
        let marked = format!(r#"{{"id":7,"result":{{"_meta":{{"mooring/rebound":{mark}}}}}}}"#);
        assert_eq!(filter.pass(answer, None), Some(Event::message(marked)));
    }

    #[test]
    fn an_id_makes_a_stream_resumable_whether_its_event_has_data_or_not() {
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
