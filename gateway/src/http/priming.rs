//! Priming events: where a client resumes that waits for a reply whose gateway died.
//!
//! A client that was given no event id cannot resume a broken stream, and many wait for the rest of it without end. So a
//! stream that is silent at first begins with an event that has an id and no data (MCP 2025-11-25, transports). The id names
//! the request and is sealed for its endpoint, caller and session. Any gateway that gets it back answers that the call may
//! have run: the reply was with the gateway that is gone.
//!
//! The server's own ids are behind that name, so that its server replays what follows them. A server may have nothing to
//! replay, as one that forgets a stream once it has answered: clients would retry forever. So a resumption that is
//! refused, or whose stream ends at once without an event, ends with the same error. A server may end a stream with
//! events to let its client come back later.
//!
//! Invariant: clients of earlier revisions, which may take an event without data for a broken message, get none,
//! neither the gateway's nor a server's.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use futures_util::{Stream, stream};
use http::{HeaderValue, StatusCode};
use mooring_session::names::{ServerName, SessionId};

use mooring_identity::Identity;
use mooring_pipeline::{Request, ServingCore, answer};
use mooring_protocol::envelope::Sender;
use mooring_protocol::{
    ErrorBody, ErrorKind, Event, EventStream, Id, Kind, Message, Method, Reply, ReplyBody,
    ReplyError, Revision,
};
use mooring_upstream::connection::event_id::{CARRIED_ID_BYTES_MAX, PREFIX as OWNED_PREFIX};

/// The prefix of these ids, which no other event id has.
const PREFIX: &str = "mooring:";
/// Keeps their seals apart from those of other ids.
const DOMAIN: &[u8] = b"event id";
/// A resumed stream that ends as soon has nothing to replay.
const AT_ONCE: Duration = Duration::from_secs(1);

/// The owner of a stream's reply.
pub(super) struct StreamOwner {
    core: Arc<ServingCore>,
    server: ServerName,
    identity: Arc<Identity>,
    session: Option<SessionId>,
    revision: Revision,
}

impl StreamOwner {
    /// Of the reply to this request. Copies nothing: most replies are no streams.
    pub(super) fn of(request: &Request) -> Self {
        let revision = request.fields.revision.as_ref();
        Self {
            core: Arc::clone(&request.core),
            server: request.endpoint.clone(),
            identity: Arc::clone(&request.identity),
            session: request.fields.session.clone().ok(),
            revision: revision.copied().unwrap_or(Revision::ASSUMED),
        }
    }

    /// The reply with the priming events that its client gets. `request` is the body that it answers; a stream that answers
    /// none gets no event of the gateway's own.
    pub(super) fn prime(&self, reply: Reply, request: Option<&Bytes>) -> Reply {
        let takes_priming = self.revision >= Revision::V2025_11_25;
        let body = match reply.body {
            ReplyBody::Events(events) => {
                let name = request.and_then(|request| self.name_of(request));
                ReplyBody::Events(Box::pin(PrimedEvents {
                    events,
                    own: name.clone().filter(|_| takes_priming),
                    name,
                    unanswered: None,
                    takes_priming,
                }))
            }
            body => body,
        };
        Reply { body, ..reply }
    }

    /// Determines what a GET with this header resumes.
    pub(super) fn resume(&self, last_event_id: Option<&HeaderValue>) -> ResumedStream {
        let named = last_event_id
            .and_then(|id| id.to_str().ok())
            .and_then(|id| id.strip_prefix(PREFIX));
        let Some(named) = named else {
            return ResumedStream::ByServer;
        };
        let mut parts = named.splitn(3, '.');
        let (encoded, seal) = (parts.next(), parts.next().unwrap_or_default());
        let event = parts.next().and_then(|id| HeaderValue::from_str(id).ok());
        let request = encoded.and_then(|encoded| self.request_of(encoded, seal));
        match (request, event) {
            (Some(id_json), Some(last_event_id)) => ResumedStream::Request(ResumedRequest {
                name: self.name(&id_json),
                id_json: id_json.into(),
                last_event_id,
            }),
            (Some(id_json), None) => {
                let error = unknown_outcome(&id_json, "the gateway that served it may be gone");
                ResumedStream::Settled(Reply::events(stream::iter([Ok(error)])))
            }
            (None, _) => ResumedStream::Settled(answer::detailed(
                ErrorKind::InvalidRequest,
                None,
                "Last-Event-ID is no event of this session",
            )),
        }
    }

    /// The name of a request in event ids; none for a message that nothing answers, and for a request whose id is too long
    /// to be repeated in headers.
    fn name_of(&self, request: &Bytes) -> Option<Box<str>> {
        let message = Message::parse(request, Sender::Client).ok()?;
        let is_resumable =
            message.kind() == Kind::Request && message.method() != Method::Initialize;
        let id = message.id().filter(|_| is_resumable)?;
        let id_json = id.as_json();
        if id_json.len() > CARRIED_ID_BYTES_MAX {
            return None;
        }
        Some(self.name(id_json))
    }

    fn name(&self, id_json: &str) -> Box<str> {
        let seal = self.core.relay.seals.seal(&self.parts(id_json));
        let encoded = URL_SAFE_NO_PAD.encode(id_json);
        format!("{PREFIX}{encoded}.{seal}").into()
    }

    /// The id, as JSON, of the request that is named so.
    fn request_of(&self, encoded: &str, seal: &str) -> Option<String> {
        let id_json = String::from_utf8(URL_SAFE_NO_PAD.decode(encoded).ok()?).ok()?;
        let seals = &self.core.relay.seals;
        let is_genuine =
            Id::from_json(&id_json).is_ok() && seals.is_seal_of(&self.parts(&id_json), seal);
        is_genuine.then_some(id_json)
    }

    fn parts<'a>(&'a self, id_json: &'a str) -> [&'a [u8]; 5] {
        let session = self.session.as_ref().map_or("", SessionId::as_str);
        [
            DOMAIN,
            self.identity.principal.as_str().as_bytes(),
            self.server.as_str().as_bytes(),
            session.as_bytes(),
            id_json.as_bytes(),
        ]
    }
}

/// What a client resumes.
pub(super) enum ResumedStream {
    /// The general stream, or what follows an event that its server alone knows.
    ByServer,
    /// Nothing can follow; this is the reply.
    Settled(Reply),
    /// The reply to a request, after an event of its server.
    Request(ResumedRequest),
}

/// A request whose reply is resumed.
pub(super) struct ResumedRequest {
    name: Box<str>,
    id_json: Box<str>,
    /// The server's id of the last event that the client has.
    pub(super) last_event_id: HeaderValue,
}

impl ResumedRequest {
    /// The client's reply, made of that to the server's id. With nothing to replay, it is the error that the call may have
    /// run; a refusal of the caller or the session is forwarded.
    pub(super) fn complete(self, reply: Reply) -> Reply {
        let events = match (reply.status, reply.body) {
            (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::NOT_FOUND, body) => {
                return Reply { body, ..reply };
            }
            (status, ReplyBody::Events(events)) if status.is_success() => events,
            _ => Box::pin(stream::empty()),
        };
        let events = PrimedEvents {
            events,
            own: None,
            name: Some(self.name),
            unanswered: Some((self.id_json, Instant::now())),
            takes_priming: true,
        };
        Reply::events(events)
    }
}

/// The error that answers a request whose stream broke, and why it has no other answer.
fn unknown_outcome(id_json: &str, why: &str) -> Event {
    let error = ErrorBody::new(ErrorKind::OutcomeUnknown)
        .answering(Id::from_json(id_json).ok())
        .detail(format_args!("the connection broke, and {why}"));
    Event::message(error.to_bytes())
}

/// The events of a reply, with the priming events that its client gets.
struct PrimedEvents {
    events: EventStream,
    /// The id of the gateway's own priming event, until that is sent or the server has given an id.
    own: Option<Box<str>>,
    /// The name of the request, which the server's ids get.
    name: Option<Box<str>>,
    /// The id, as JSON, of the request that a resumed stream is of, and since when, until it has an event.
    unanswered: Option<(Box<str>, Instant)>,
    /// Whether the client's revision has such events.
    takes_priming: bool,
}

impl PrimedEvents {
    /// Puts the name of the request before an id of its server. Connections that gateways own name the request themselves.
    fn name_event(&self, event: &mut Event) {
        if let (Some(name), Some(id)) = (&self.name, &mut event.id)
            && !id.starts_with(OWNED_PREFIX)
            && !id.is_empty()
            && id.bytes().all(|byte| byte.is_ascii_graphic())
        {
            *id = format!("{name}.{id}").into();
        }
    }
}

impl Stream for PrimedEvents {
    type Item = Result<Event, ReplyError>;

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Event, ReplyError>>> {
        let this = &mut *self;
        loop {
            let polled = this.events.as_mut().poll_next(context);
            if polled.is_pending()
                && let Some(id) = this.own.take()
            {
                let event = Event {
                    id: Some(id),
                    ..Event::message(Bytes::new())
                };
                return Poll::Ready(Some(Ok(event)));
            }
            let mut next = ready!(polled);
            if next.is_none()
                && let Some((id_json, _)) =
                    (this.unanswered.take()).filter(|(_, since)| since.elapsed() < AT_ONCE)
            {
                let why = "its server has no answer to replay";
                return Poll::Ready(Some(Ok(unknown_outcome(&id_json, why))));
            }
            if let Some(Ok(event)) = &mut next {
                if event.id.is_some() {
                    this.own = None;
                }
                this.unanswered = None;
                this.name_event(event);
                let is_priming = event.data.as_ref().is_some_and(Bytes::is_empty);
                if is_priming && !this.takes_priming {
                    continue;
                }
            }
            return Poll::Ready(next);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::indexing_slicing,
        reason = "tests fail by panicking"
    )]
    use futures_util::StreamExt;

    use super::*;

    fn primed(events: EventStream, takes_priming: bool) -> PrimedEvents {
        PrimedEvents {
            events,
            own: takes_priming.then(|| "own".into()),
            name: None,
            unanswered: None,
            takes_priming,
        }
    }

    fn with_id(id: &str, data: &'static str) -> Event {
        Event {
            id: Some(id.into()),
            ..Event::message(data)
        }
    }

    fn at_once(events: Vec<Event>) -> EventStream {
        Box::pin(stream::iter(events.into_iter().map(Ok)))
    }

    #[tokio::test]
    async fn a_stream_that_is_silent_at_first_begins_with_an_id() {
        let silent = at_once(Vec::new()).chain(stream::pending());
        let mut primed = primed(Box::pin(silent), true);
        let first = primed.next().await.unwrap().unwrap();
        assert_eq!(first, with_id("own", ""));
        assert!(futures_util::poll!(primed.next()).is_pending(), "only once");
    }

    #[tokio::test]
    async fn an_answer_that_is_there_and_an_id_of_the_server_need_none() {
        let answer = Event::message("{}");
        let mut whole = primed(at_once(vec![answer.clone()]), true);
        assert_eq!(whole.next().await.unwrap().unwrap(), answer);
        assert!(whole.next().await.is_none());
        let its = at_once(vec![with_id("its", "")]).chain(stream::pending());
        let mut its = primed(Box::pin(its), true);
        assert_eq!(its.next().await.unwrap().unwrap(), with_id("its", ""));
        assert!(futures_util::poll!(its.next()).is_pending());
    }

    /// The events that the client gets of a resumed stream with these events of its server.
    async fn resumed(events: Vec<Event>) -> Vec<Event> {
        let request = ResumedRequest {
            name: "mooring:request.seal".into(),
            id_json: "7".into(),
            last_event_id: HeaderValue::from_static("1"),
        };
        let reply = request.complete(Reply::events(stream::iter(events.into_iter().map(Ok))));
        let ReplyBody::Events(events) = reply.body else {
            return Vec::new();
        };
        events.map(Result::unwrap).collect().await
    }

    #[tokio::test]
    async fn a_resumed_stream_with_nothing_to_replay_is_an_error_for_its_request() {
        let got = resumed(Vec::new()).await;
        let only = got.first().unwrap().data.as_ref().unwrap();
        let only: serde_json::Value = serde_json::from_slice(only).unwrap();
        assert_eq!(only["id"], 7, "{only}");
        assert_eq!(only["error"]["code"], -32012, "{only}");
    }

    /// Also one that its server ends before the answer, for its client to come back.
    #[tokio::test]
    async fn a_resumed_stream_with_events_is_replayed_with_named_ids() {
        for data in [r#"{"jsonrpc":"2.0","id":7,"result":{}}"#, ""] {
            let got = resumed(vec![with_id("2", data)]).await;
            assert_eq!(got, [with_id("mooring:request.seal.2", data)]);
        }
    }

    #[tokio::test]
    async fn a_refused_resumption_is_an_error_for_its_request() {
        let request = ResumedRequest {
            name: "mooring:request.seal".into(),
            id_json: "7".into(),
            last_event_id: HeaderValue::from_static("1"),
        };
        let refused = request.complete(Reply::empty(StatusCode::METHOD_NOT_ALLOWED));
        assert_eq!(refused.status, StatusCode::OK);
        assert!(matches!(refused.body, ReplyBody::Events(_)));
    }

    #[tokio::test]
    async fn a_client_of_an_earlier_revision_gets_no_event_without_data() {
        let events = vec![with_id("1", ""), with_id("2", "{}")];
        let earlier = primed(at_once(events), false);
        let got: Vec<Event> = earlier.map(Result::unwrap).collect().await;
        assert_eq!(got, [with_id("2", "{}")]);
    }
}
