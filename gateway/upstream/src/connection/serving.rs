//! How a connection serves the client's requests, as an instance over HTTP would.
//!
//! Invariants: the stream of every client request ends with its answer, breaks, or can be resumed; an answer of the
//! client reaches the server at most once.

use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use tokio::time::Instant;

use super::actor::{Actor, STOPPED};
use super::event_id::{EventId, StreamName};
use super::key::{Key, KeyRejection};
use super::log::{EventLog, EventPart, StreamTag};
use super::mailbox::ConnectionRequest;
use super::negotiated::NegotiatedCapabilities;
use super::open_questions::QuestionOrigin;
use super::outbox::{End, Outbox, outbox};
use super::reply;
use super::sending::{ReplyTo, SendReceipt};
use super::stream::Stream;
use crate::SendError;
use mooring_protocol::mark::STATE_LOST;
use mooring_protocol::{
    ErrorBody, ErrorKind, Event, Id, Kind, Message, Method, Reply, RequestOrigin, RequestTag,
    Sender, call, with_request_id,
};

/// Unread answers may take this many times the longest message before new requests are rejected.
const UNREAD_MAX: usize = 4;
/// Sent to a client that resumes a stream with evicted events (`notifications/message`, MCP 2025-03-26, logging).
const MISSED: &str = concat!(
    r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"warning","logger":"mooring","#,
    r#""data":{"message":"some of what this stream said meanwhile is not kept any more"}}}"#
);

/// Whether a server keeps nothing of a request of this method that its client would miss.
const fn is_only_looking(method: Method) -> bool {
    matches!(
        method,
        Method::Initialize
            | Method::Ping
            | Method::ToolsList
            | Method::PromptsList
            | Method::ResourcesList
            | Method::ResourceTemplatesList
            | Method::LoggingSetLevel
    )
}

/// What to do with a POSTed message.
enum PostDecision {
    /// Send it; this is the reply once it is sent.
    ToSend(Reply),
    /// It is sent in this form.
    ToSendAs(Bytes, Reply),
    /// Do not send it; this is the reply.
    Done(Reply),
}

impl Actor {
    /// Serves one request.
    pub(super) fn serve(&mut self, request: ConnectionRequest, to: ReplyTo) {
        let reply = match request {
            ConnectionRequest::Post(body) => return self.post(&body, to),
            ConnectionRequest::Listen { after: None } => self.listen(),
            ConnectionRequest::Listen { after: Some(after) } => self.resume(&after),
        };
        // A caller that no longer waits drops the stream with the reply.
        let _ = to.send(Ok(reply));
    }

    /// Serves one request after an idle stop: streams work as before, and a ping succeeds because the session is alive.
    pub(super) fn serve_stopped(&mut self, request: ConnectionRequest, to: ReplyTo) {
        let ConnectionRequest::Post(body) = request else {
            return self.serve(request, to);
        };
        let message = Message::parse(&body, Sender::Gateway).ok();
        let pinged = message
            .filter(|message| message.method() == Method::Ping)
            .and_then(|message| Some(call::empty_result(message.id()?.as_json())));
        let _ = to.send(match pinged {
            Some(answer) => Ok(reply::one_event(Event::message(answer))),
            None => Err(SendError::Ended(STOPPED.into())),
        });
    }

    fn post(&mut self, body: &Bytes, to: ReplyTo) {
        let message = match Message::parse(body, Sender::Gateway) {
            Ok(message) => message,
            Err(error) => {
                let _ = to.send(Ok(reply::refused(&ErrorBody::from(&error))));
                return;
            }
        };
        let decision = if self.sending.has_room(body.len()) {
            self.accept(&message)
        } else {
            let error = ErrorBody::new(ErrorKind::TooManyRequests)
                .detail("the server does not read what it is sent");
            PostDecision::Done(reply::refused(&error.answering(message.id())))
        };
        match decision {
            PostDecision::ToSend(reply) => {
                self.sending.add(body.clone(), SendReceipt::new(to, reply))
            }
            PostDecision::ToSendAs(text, reply) => {
                self.sending.add(text, SendReceipt::new(to, reply));
            }
            PostDecision::Done(reply) => drop(to.send(Ok(reply))),
        }
    }

    /// Updates the connection's state for a message of the client.
    fn accept(&mut self, message: &Message<'_>) -> PostDecision {
        if message.method() != Method::Ping {
            self.used_at = Instant::now();
        }
        match message.kind() {
            Kind::Request => self.call(message),
            Kind::Notification if message.method() == Method::Cancelled => self.cancel(message),
            Kind::Notification => PostDecision::ToSend(reply::accepted()),
            Kind::Result | Kind::Error => {
                let key = message.id().map(|id| Key::of(id.as_json()));
                let question = key.and_then(|key| self.open_questions.take(&key));
                if question.is_some() {
                    return PostDecision::ToSend(reply::accepted());
                }
                tracing::debug!("the client answered a request that is not open");
                PostDecision::Done(reply::accepted())
            }
        }
    }

    fn call(&mut self, message: &Message<'_>) -> PostDecision {
        let Some(id) = message.id() else {
            return PostDecision::Done(reply::refused(&ErrorBody::new(ErrorKind::InvalidRequest)));
        };
        let key = Key::of(id.as_json());
        if let Err(error) = self.calls.check(&key) {
            return PostDecision::Done(rejection_reply(error, id));
        }
        if self.backlog.ended_bytes() > self.options.message_bytes_max.saturating_mul(UNREAD_MAX) {
            return PostDecision::Done(too_many(
                id,
                "the answers to earlier requests are not read",
            ));
        }
        self.is_used |= !is_only_looking(message.method());
        if message.method() == Method::Initialize {
            self.negotiated = NegotiatedCapabilities::by_client(message);
        }
        let mut stream = Stream::new(self.tag_of(&key, message.method()));
        let (outbox, reader) = outbox(&self.backlog, self.options.memory.as_ref());
        stream.attach(outbox);
        self.prime(&stream);
        let token = message.params.requested_progress().map(Key::of);
        self.calls.begin(key, message.method(), token, stream);
        PostDecision::ToSend(Reply::events(reader))
    }

    /// Forwards the cancellation of a request. A gateway that does not know the request's tag names it by its client's
    /// id.
    fn cancel(&mut self, message: &Message<'_>) -> PostDecision {
        let Some(id_json) = message.cancelled_request() else {
            return PostDecision::ToSend(reply::accepted());
        };
        let named = Key::of(id_json);
        let key = match named.origin() {
            RequestOrigin::Client { id, tag: None } => match self.calls.find_clients(&id) {
                Some(key) => key.clone(),
                None => return PostDecision::Done(reply::accepted()),
            },
            _ => named,
        };
        self.calls.cancel(&key, Instant::now());
        match with_request_id(message, &key.to_json()) {
            Some(text) => PostDecision::ToSendAs(text.into(), reply::accepted()),
            None => PostDecision::ToSend(reply::accepted()),
        }
    }

    /// The tag of a new stream in the log. Requests of the gateway need none, and before the end of `initialize` the
    /// client has no session in which it could resume.
    fn tag_of(&mut self, key: &Key, method: Method) -> Option<Arc<StreamTag>> {
        if method == Method::Initialize {
            return None;
        }
        let RequestOrigin::Client { id, tag } = key.origin() else {
            return None;
        };
        let name = StreamName::call(tag?, &id)?;
        Some(self.log.begin(name))
    }

    fn prime(&mut self, stream: &Stream) {
        if self.negotiated.has_priming_events() {
            stream.push(&mut self.log, EventPart::Priming, Bytes::new());
        }
    }

    /// Opens the general stream.
    fn listen(&mut self) -> Reply {
        if self.general.is_read() {
            return reply::refused(&ErrorBody::new(ErrorKind::StreamConflict));
        }
        let (outbox, reader) = outbox(&self.backlog, self.options.memory.as_ref());
        self.general.attach(outbox);
        if self.negotiated.has_priming_events() {
            self.general
                .push(&mut self.log, EventPart::Priming, Bytes::new());
        }
        self.deliver_pending();
        Reply::events(reader)
    }

    fn deliver_pending(&mut self) {
        for item in self.pending_messages.take() {
            self.send_to(QuestionOrigin::General, item.text);
            self.record_question(item.question, QuestionOrigin::General);
        }
    }

    /// Resumes after an event. An id that no connection has written, or one of an earlier connection's general stream,
    /// opens the general stream as if there were no id.
    fn resume(&mut self, after: &str) -> Reply {
        let Some(event) = EventId::parse(after) else {
            return self.listen();
        };
        let is_ours = event.epoch == self.log.epoch();
        match event.stream.request() {
            None if is_ours => self.resume_general(event.number),
            None => self.listen(),
            Some(request) if is_ours => self.resume_call(&event, request),
            Some((tag, id)) => {
                reply::one_event(outcome_unknown(&Key::of_client(tag, id), STATE_LOST))
            }
        }
    }

    /// Only the stream's reader knows its event ids, so a reader that is still attached has broken unnoticed and is
    /// replaced.
    fn resume_general(&mut self, after: u64) -> Reply {
        let (outbox, reader) = outbox(&self.backlog, self.options.memory.as_ref());
        if let Some(tag) = self.general.tag() {
            replay(&self.log, tag, after, &outbox);
        }
        self.general.attach(outbox);
        self.deliver_pending();
        Reply::events(reader)
    }

    fn resume_call(&mut self, event: &EventId, (tag, id): (RequestTag, Id<'_>)) -> Reply {
        let key = Key::of_client(tag, id);
        let (outbox, reader) = outbox(&self.backlog, self.options.memory.as_ref());
        let in_flight = self.calls.stream_mut(&key).filter(|stream| {
            let tag = stream.tag();
            tag.is_some_and(|tag| tag.is_of(&event.stream, event.number))
        });
        if let Some(stream) = in_flight {
            if let Some(tag) = stream.tag() {
                replay(&self.log, tag, event.number, &outbox);
            }
            stream.attach(outbox);
            return Reply::events(reader);
        }
        let tag = self.log.find(&event.stream, event.number);
        if let Some(tag) = &tag {
            replay(&self.log, tag, event.number, &outbox);
        }
        if !tag.is_some_and(|tag| self.log.has_answer(&tag)) {
            outbox.push(outcome_unknown(&key, "its events are not kept any more"));
        }
        outbox.end(End::Whole);
        Reply::events(reader)
    }
}

/// Replays the logged events after this number, preceded by a warning if some were evicted.
fn replay(log: &EventLog, tag: &Arc<StreamTag>, after: u64, outbox: &Outbox) {
    if tag.has_lost_after(after) {
        outbox.push(Event::message(MISSED));
    }
    log.after(tag, after).for_each(|event| outbox.push(event));
}

fn rejection_reply(error: KeyRejection, id: Id<'_>) -> Reply {
    match error {
        // With an error status some clients would give up the session.
        KeyRejection::Duplicate => reply::refused_as(
            StatusCode::OK,
            &ErrorBody::new(ErrorKind::InvalidRequest)
                .answering(Some(id))
                .detail("a request with this id is in flight"),
        ),
        KeyRejection::TooMany => too_many(id, "the limit of in-flight requests is reached"),
    }
}

fn too_many(id: Id<'_>, why: &'static str) -> Reply {
    let error = ErrorBody::new(ErrorKind::TooManyRequests);
    reply::refused(&error.answering(Some(id)).detail(why))
}

/// The error that tells a client that its call may have run. It has the request's id as sent to the server, as do all
/// messages of a connection.
fn outcome_unknown(key: &Key, why: &str) -> Event {
    let id_json = key.to_json();
    let error = ErrorBody::new(ErrorKind::OutcomeUnknown)
        .answering(Id::from_json(&id_json).ok())
        .detail(why);
    Event::message(error.to_bytes())
}
