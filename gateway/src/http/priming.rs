//! Priming events: where a client resumes that waits for a reply whose gateway died.
//!
//! A client that was given no event id cannot resume a broken stream, and many wait for the rest of it without end. So a
//! stream that is silent at first begins with an event that has an id and no data (MCP 2025-11-25, transports). The id names
//! the request and is sealed for its endpoint, caller and session. Any gateway that gets it back answers that the call may
//! have run: the reply was with the gateway that is gone.
//!
//! Invariants: where the server gives event ids, the client's last one is the server's, which replays what follows; clients
//! of earlier revisions, which may take an event without data for a broken message, get none, whoever wrote it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use futures_util::{Stream, stream};
use http::HeaderValue;

use super::endpoint::RequestContext;
use super::target::ServerTarget;
use super::{App, answer};
use mooring_identity::Identity;
use mooring_protocol::envelope::Sender;
use mooring_protocol::header::{MCP_SESSION_ID, X_MCP_SESSION_ID};
use mooring_protocol::{
    ErrorBody, ErrorKind, Event, EventStream, Id, Kind, Message, Method, Reply, ReplyBody,
    ReplyError, Revision,
};
use mooring_upstream::connection::event_id::CARRIED_ID_BYTES_MAX;

/// What the ids begin with, which no other id of an event does.
const PREFIX: &str = "mooring:";
/// Keeps their seals apart from those of other ids.
const DOMAIN: &[u8] = b"event id";

/// Whose reply a stream is.
pub(super) struct StreamOwner {
    app: Arc<App>,
    server: ServerTarget,
    identity: Arc<Identity>,
    session: Option<HeaderValue>,
    revision: Revision,
}

impl StreamOwner {
    /// Of the reply to this request. Copies nothing: most replies are no streams.
    pub(super) fn of(context: &RequestContext) -> Self {
        let session = [MCP_SESSION_ID, X_MCP_SESSION_ID]
            .into_iter()
            .find_map(|name| context.headers.get(name));
        Self {
            app: Arc::clone(&context.app),
            server: context.server.clone(),
            identity: Arc::clone(&context.identity),
            session: session.cloned(),
            revision: Revision::of_headers(&context.headers).unwrap_or(Revision::ASSUMED),
        }
    }

    /// The reply with the priming events that its client gets. `request` is the body that it answers; a stream that answers
    /// none gets no event of the gateway's own.
    pub(super) fn prime(&self, reply: Reply, request: Option<&Bytes>) -> Reply {
        let takes_priming = self.revision >= Revision::V2025_11_25;
        let body = match reply.body {
            ReplyBody::Events(events) => ReplyBody::Events(Box::pin(PrimedEvents {
                events,
                own: request
                    .filter(|_| takes_priming)
                    .and_then(|request| self.event_id_for(request)),
                takes_priming,
            })),
            body => body,
        };
        Reply { body, ..reply }
    }

    /// The error for a request whose stream the client resumes after a priming event of a gateway; none for the id of
    /// another event.
    pub(super) fn resume(&self, last_event_id: Option<&HeaderValue>) -> Option<Reply> {
        let named = last_event_id?.to_str().ok()?.strip_prefix(PREFIX)?;
        Some(match self.request_of(named) {
            Some(id_json) => {
                let error = ErrorBody::new(ErrorKind::OutcomeUnknown)
                    .answering(Id::from_json(&id_json).ok())
                    .detail("the connection broke, and the gateway at its end may be gone");
                Reply::events(stream::iter([Ok(Event::message(error.to_bytes()))]))
            }
            None => answer::error(
                &ErrorBody::new(ErrorKind::InvalidRequest)
                    .detail("Last-Event-ID is no event of this session"),
            ),
        })
    }

    /// None for a message that nothing answers, and for a request whose id is too long to be repeated in headers.
    fn event_id_for(&self, request: &Bytes) -> Option<Box<str>> {
        let message = Message::parse(request, Sender::Client).ok()?;
        let is_resumable =
            message.kind() == Kind::Request && message.method() != Method::Initialize;
        let id = message.id().filter(|_| is_resumable)?;
        let id_json = id.as_json();
        if id_json.len() > CARRIED_ID_BYTES_MAX {
            return None;
        }
        let seal = self.app.relay.seals.seal(&self.parts(id_json));
        let encoded = URL_SAFE_NO_PAD.encode(id_json);
        Some(format!("{PREFIX}{encoded}.{seal}").into())
    }

    /// The id, as JSON, of the request that a priming event is of.
    fn request_of(&self, named: &str) -> Option<String> {
        let (encoded, seal) = named.split_once('.')?;
        let id_json = String::from_utf8(URL_SAFE_NO_PAD.decode(encoded).ok()?).ok()?;
        let seals = &self.app.relay.seals;
        let is_genuine =
            Id::from_json(&id_json).is_ok() && seals.is_seal_of(&self.parts(&id_json), seal);
        is_genuine.then_some(id_json)
    }

    fn parts<'a>(&'a self, id_json: &'a str) -> [&'a [u8]; 5] {
        let session = (self.session.as_ref()).map_or(&[][..], HeaderValue::as_bytes);
        [
            DOMAIN,
            self.identity.principal.as_str().as_bytes(),
            self.server.id().as_bytes(),
            session,
            id_json.as_bytes(),
        ]
    }
}

/// The events of a reply, with the priming events that its client gets.
struct PrimedEvents {
    events: EventStream,
    /// The id of the gateway's own priming event, until that is sent or the server has given an id.
    own: Option<Box<str>>,
    /// Whether the client's revision has such events.
    takes_priming: bool,
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
            let next = ready!(polled);
            if let Some(Ok(event)) = &next {
                if event.id.is_some() {
                    this.own = None;
                }
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
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use futures_util::StreamExt;

    use super::*;

    fn primed(events: EventStream, takes_priming: bool) -> PrimedEvents {
        PrimedEvents {
            events,
            own: takes_priming.then(|| "own".into()),
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

    #[tokio::test]
    async fn a_client_of_an_earlier_revision_gets_no_event_without_data() {
        let events = vec![with_id("1", ""), with_id("2", "{}")];
        let earlier = primed(at_once(events), false);
        let got: Vec<Event> = earlier.map(Result::unwrap).collect().await;
        assert_eq!(got, [with_id("2", "{}")]);
    }
}
