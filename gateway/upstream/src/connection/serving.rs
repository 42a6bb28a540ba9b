//! What a connection does with the requests of the client, as an instance over HTTP would.
//!
//! Invariants: every request of the client has a stream that ends with its answer, or breaks, or can be resumed; an answer
//! of the client reaches the server once.

use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use tokio::time::Instant;

use super::ConnectionRequest;
use super::actor::{Actor, STOPPED};
use super::calls::CallRejection;
use super::event_id::{EventId, StreamName};
use super::key::Key;
use super::log::{EventLog, EventPart, StreamTag};
use super::negotiated::NegotiatedCapabilities;
use super::open_questions::QuestionOrigin;
use super::outbox::{End, Outbox, outbox};
use super::reply;
use super::sending::{ReplyTo, SendReceipt};
use super::stream::Stream;
use crate::SendError;
use mooring_protocol::{
    ErrorBody, ErrorKind, Event, Id, Kind, Message, Method, Reply, Sender, call,
};

/// Answers that were given but not read may take this many times the size of the longest message before no further
/// request is taken.
const UNREAD_MAX: usize = 4;
/// What a client is told that resumes a stream of which too much came meanwhile (`notifications/message`, MCP 2025-03-26,
/// logging).
const MISSED: &str = concat!(
    r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"warning","logger":"mooring","#,
    r#""data":{"message":"some of what this stream said meanwhile is not kept any more"}}}"#
);

/// What becomes of a message that was posted.
enum PostDecision {
    /// It is to be sent; this is the reply when it was.
    ToSend(Reply),
    /// It is not; this is the reply.
    Done(Reply),
}

impl Actor {
    /// Serves one request.
    pub(super) fn serve(&mut self, ask: ConnectionRequest, to: ReplyTo) {
        let reply = match ask {
            ConnectionRequest::Post(body) => return self.post(&body, to),
            ConnectionRequest::Listen { after: None } => self.listen(),
            ConnectionRequest::Listen { after: Some(after) } => self.resume(&after),
        };
        // A caller that does not wait any more drops the stream with the reply.
        let _ = to.send(Ok(reply));
    }

    /// Serves one request after the server was stopped: a stream stays as good as it was, and a ping asks whether the session
    /// lives, which it does.
    pub(super) fn serve_stopped(&mut self, ask: ConnectionRequest, to: ReplyTo) {
        let ConnectionRequest::Post(body) = ask else {
            return self.serve(ask, to);
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
        let taken = if self.sending.has_place(body.len()) {
            self.take(&message)
        } else {
            let error = ErrorBody::new(ErrorKind::TooManyRequests)
                .detail("the server does not read what it is sent");
            PostDecision::Done(reply::refused(&error.answering(message.id())))
        };
        match taken {
            PostDecision::ToSend(reply) => {
                self.sending.add(body.clone(), SendReceipt::new(to, reply))
            }
            PostDecision::Done(reply) => drop(to.send(Ok(reply))),
        }
    }

    /// Notes what a message means for the connection.
    fn take(&mut self, message: &Message<'_>) -> PostDecision {
        if message.method() != Method::Ping {
            self.used_at = Instant::now();
        }
        match message.kind() {
            Kind::Request => self.call(message),
            Kind::Notification => {
                if message.method() == Method::Cancelled
                    && let Some(id) = message.params.request_id()
                {
                    self.calls.cancel(&Key::of(id), Instant::now());
                }
                PostDecision::ToSend(reply::accepted())
            }
            Kind::Result | Kind::Error => {
                let key = message.id().map(|id| Key::of(id.as_json()));
                let asked = key.and_then(|key| self.open_questions.take(&key));
                if asked.is_some() {
                    return PostDecision::ToSend(reply::accepted());
                }
                tracing::debug!("the client answers a request that is not open");
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
            return PostDecision::Done(not_taken(error, id));
        }
        if self.backlog.left_bytes() > self.options.message_bytes_max.saturating_mul(UNREAD_MAX) {
            return PostDecision::Done(too_many(
                id,
                "the answers to earlier requests are not read",
            ));
        }
        if message.method() == Method::Initialize {
            self.negotiated = NegotiatedCapabilities::by_client(message);
        }
        let mut stream = Stream::new(self.tag_of(&key, message.method()));
        let (outbox, reader) = outbox(&self.backlog);
        stream.attach(outbox);
        self.prime(&stream);
        let token = message.params.requested_progress().map(Key::of);
        self.calls.begin(key, message.method(), token, stream);
        PostDecision::ToSend(Reply::events(reader))
    }

    /// The name of a new stream in the log. The gateway's own requests need none, and before the end of `initialize`
    /// there is no session in which a client could resume.
    fn tag_of(&mut self, key: &Key, method: Method) -> Option<Arc<StreamTag>> {
        if method == Method::Initialize {
            return None;
        }
        let name = StreamName::call(key.client_id()?)?;
        Some(self.log.begin(name))
    }

    fn prime(&mut self, stream: &Stream) {
        if self.negotiated.has_priming_events() {
            stream.say(&mut self.log, EventPart::Priming, Bytes::new());
        }
    }

    /// Opens the stream of what belongs to no call.
    fn listen(&mut self) -> Reply {
        if self.general.is_read() {
            return reply::refused(&ErrorBody::new(ErrorKind::StreamConflict));
        }
        let (outbox, reader) = outbox(&self.backlog);
        self.general.attach(outbox);
        if self.negotiated.has_priming_events() {
            self.general
                .say(&mut self.log, EventPart::Priming, Bytes::new());
        }
        self.tell_what_waited();
        Reply::events(reader)
    }

    fn tell_what_waited(&mut self) {
        for item in self.pending_messages.take() {
            self.say(QuestionOrigin::General, item.text);
            self.asked(item.question, QuestionOrigin::General);
        }
    }

    /// Goes on after an event. An id that no connection has written, or that of an earlier connection's stream of
    /// unrelated messages, says nothing that could be gone on from; it is as good as none.
    fn resume(&mut self, after: &str) -> Reply {
        let Some(event) = EventId::parse(after) else {
            return self.listen();
        };
        let is_ours = event.epoch == self.log.epoch();
        match event.stream.request() {
            None if is_ours => self.resume_general(event.number),
            None => self.listen(),
            Some(request) if is_ours => self.resume_call(&event, request),
            Some(request) => lost_call(request),
        }
    }

    /// The client that names an event of the stream was its reader: a body that still seems to be read is one whose
    /// break was not noticed yet.
    fn resume_general(&mut self, after: u64) -> Reply {
        let (outbox, reader) = outbox(&self.backlog);
        if let Some(tag) = self.general.tag() {
            replay(&self.log, tag, after, &outbox);
        }
        self.general.attach(outbox);
        self.tell_what_waited();
        Reply::events(reader)
    }

    fn resume_call(&mut self, event: &EventId, request: Id<'_>) -> Reply {
        let (outbox, reader) = outbox(&self.backlog);
        let in_flight = self
            .calls
            .stream_mut(&Key::of_client(request.as_json()))
            .filter(|stream| {
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
            outbox.push(lost(request));
        }
        outbox.end(End::Whole);
        Reply::events(reader)
    }
}

/// What is kept of a stream after the event with this number, behind the word that there was more.
fn replay(log: &EventLog, tag: &Arc<StreamTag>, after: u64, outbox: &Outbox) {
    if tag.has_lost_after(after) {
        outbox.push(Event::message(MISSED));
    }
    log.after(tag, after).for_each(|event| outbox.push(event));
}

fn not_taken(error: CallRejection, id: Id<'_>) -> Reply {
    match error {
        // A status that refuses would make some clients give up the session.
        CallRejection::Duplicate => reply::refused_as(
            StatusCode::OK,
            &ErrorBody::new(ErrorKind::InvalidRequest)
                .answering(Some(id))
                .detail("a request with this id is in flight"),
        ),
        CallRejection::TooMany => too_many(id, "they are in flight"),
    }
}

fn too_many(id: Id<'_>, why: &'static str) -> Reply {
    let error = ErrorBody::new(ErrorKind::TooManyRequests);
    reply::refused(&error.answering(Some(id)).detail(why))
}

/// The reply to a resume of a call of which only its request is known.
#[must_use]
fn lost_call(request: Id<'_>) -> Reply {
    reply::one_event(lost(request))
}

/// The event that tells a client that its call may have run. The request is named as the server knows it, as in all that
/// a connection says.
fn lost(request: Id<'_>) -> Event {
    let id_json = Key::of_client(request.as_json()).to_json();
    let error = ErrorBody::new(ErrorKind::OutcomeUnknown)
        .answering(Id::from_json(&id_json).ok())
        .detail("its events are not kept any more");
    Event::message(error.to_bytes())
}
