//! How a connection handles the messages of its server.
//!
//! Invariants: each message goes to exactly one stream, is queued, is answered here, or is dropped; no message of the
//! server breaks the connection or reaches a request that it does not belong to.

use bytes::Bytes;
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::actor::Actor;
use super::key::{Key, KeyRejection};
use super::log::EventPart;
use super::open_questions::QuestionOrigin;
use super::outbox::End;
use super::refusal::Refusal;
use super::route::{MessageRoute, route_of};
use crate::dropped_message::report_dropped_message;
use mooring_protocol::{EnvelopeError, ErrorBody, ErrorKind, Message, Method, Sender, call};

/// Most messages of a batch (MCP 2025-03-26) that are handled.
const BATCH_MESSAGES_MAX: usize = 1024;

impl Actor {
    /// Handles what the server sent: one message, or a batch.
    pub(super) fn receive(&mut self, raw: &[u8]) {
        match Message::parse(raw, Sender::Upstream) {
            Err(EnvelopeError::Batch) => self.receive_batch(raw),
            Err(error) => self.report_invalid(&error),
            Ok(message) if raw.len() > self.options.message_bytes_max => {
                self.handle_too_long(&message);
            }
            Ok(message) => self.handle_message(&message),
        }
    }

    fn receive_batch(&mut self, raw: &[u8]) {
        let messages: Vec<&RawValue> = match serde_json::from_slice(raw) {
            Ok(messages) => messages,
            Err(error) => return self.report_invalid(&error.into()),
        };
        if raw.len() > self.options.message_bytes_max || messages.len() > BATCH_MESSAGES_MAX {
            let why = format!(
                "it holds {} messages in {} bytes",
                messages.len(),
                raw.len()
            );
            report_dropped_message("dropped the rest of a batch that is too long", why);
        }
        let mut bytes = 0_usize;
        for message in messages.iter().take(BATCH_MESSAGES_MAX) {
            bytes = bytes.saturating_add(message.get().len());
            if bytes > self.options.message_bytes_max {
                break;
            }
            match Message::parse(message.get().as_bytes(), Sender::Upstream) {
                Ok(message) => self.handle_message(&message),
                Err(error) => self.report_invalid(&error),
            }
        }
    }

    fn handle_message(&mut self, message: &Message<'_>) {
        match route_of(message) {
            MessageRoute::AnsweredRequest => self.handle_answer(message, text_of(message)),
            MessageRoute::Connection => {
                if let Some(id) = message.id() {
                    self.answer(call::empty_result(id.as_json()).into());
                }
            }
            MessageRoute::ProgressToken => self.handle_progress(message),
            MessageRoute::CancelledQuestion => self.handle_cancellation(message),
            MessageRoute::CausingCall => match message.id() {
                Some(id) => self.handle_question(message, Key::of(id.as_json())),
                None => self.send_to_causing_call(message, None),
            },
            MessageRoute::General => self.send_to_general(message, None),
        }
    }

    fn handle_answer(&mut self, message: &Message<'_>, text: Bytes) {
        let call = message
            .id()
            .and_then(|id| self.calls.finish(&Key::of(id.as_json())));
        let Some(mut call) = call else {
            let why = "no request with its id is in flight";
            return report_dropped_message("dropped an answer of the server", why);
        };
        if call.method == Method::Initialize {
            self.negotiated.answered(message);
        }
        self.used_at = Instant::now();
        call.stream.push(&mut self.log, EventPart::Answer, text);
        call.stream.end(End::Whole);
    }

    /// Drops a message that is too long. If it is an answer, the client gets an error instead.
    fn handle_too_long(&mut self, message: &Message<'_>) {
        let why = format!("it is {} bytes long", message.text().len());
        report_dropped_message("dropped a message of the server", &why);
        if message.kind().is_response() {
            let error = ErrorBody::new(ErrorKind::UpstreamInvalid)
                .answering(message.id())
                .detail(why)
                .to_bytes();
            self.handle_answer(message, error);
        }
    }

    fn handle_progress(&mut self, message: &Message<'_>) {
        let token = message.params.progress_token().map(Key::of);
        let stream = token
            .as_ref()
            .and_then(|token| self.calls.with_progress_token(token));
        if let Some(stream) = stream {
            return stream.push(&mut self.log, EventPart::Middle, text_of(message));
        }
        // A task outlives the call that created it (MCP 2025-11-25, tasks), and keeps its token.
        let is_clients = token.is_some_and(|token| token.is_clients());
        if is_clients && self.general.is_read() {
            self.used_at = Instant::now();
            self.general
                .push(&mut self.log, EventPart::Middle, text_of(message));
        } else {
            tracing::debug!("dropped progress that belongs to no in-flight request");
        }
    }

    /// The server withdraws a request: the client is notified, unless it has answered.
    fn handle_cancellation(&mut self, message: &Message<'_>) {
        let Some(key) = message.cancelled_request().map(Key::of) else {
            return;
        };
        match self.open_questions.take(&key) {
            None => tracing::debug!("the server withdrew a request that is not open"),
            Some(QuestionOrigin::Waiting) => self.pending_messages.remove(&key),
            Some(origin) => self.send_to(origin, text_of(message)),
        }
    }

    fn handle_question(&mut self, message: &Message<'_>, key: Key) {
        if !self.negotiated.allows(message) {
            return self.refuse(&key, Refusal::NoCapability);
        }
        match self.open_questions.check(&key) {
            Ok(()) => self.send_to_causing_call(message, Some(key)),
            // An error would also answer the earlier request with this id.
            Err(KeyRejection::Duplicate) => {
                let why = "an earlier one with its id is open";
                report_dropped_message("dropped a request of the server", why);
            }
            Err(KeyRejection::TooMany) => self.refuse(&key, Refusal::TooMany),
        }
    }

    /// Sends a notification or request to the stream of the call that most likely caused it.
    fn send_to_causing_call(&mut self, message: &Message<'_>, question: Option<Key>) {
        let Some(number) = self.calls.cause() else {
            return self.send_to_general(message, question);
        };
        self.send_to(QuestionOrigin::Call(number), text_of(message));
        self.record_question(question, QuestionOrigin::Call(number));
    }

    /// Sends a notification or request to the general stream; without a reader it is queued.
    fn send_to_general(&mut self, message: &Message<'_>, question: Option<Key>) {
        if self.general.is_read() {
            self.used_at = Instant::now();
            self.send_to(QuestionOrigin::General, text_of(message));
            return self.record_question(question, QuestionOrigin::General);
        }
        self.record_question(question.clone(), QuestionOrigin::Waiting);
        for dropped in self.pending_messages.add(message, question) {
            let why = "the queue for the client's general stream is full";
            report_dropped_message("dropped a message of the server", why);
            if let Some(key) = dropped.question {
                self.open_questions.take(&key);
                self.refuse(&key, Refusal::NoListener);
            }
        }
    }

    /// Records on which stream the client was asked.
    pub(super) fn record_question(&mut self, question: Option<Key>, origin: QuestionOrigin) {
        if let Some(key) = question {
            let deadline = self.answer_deadline(origin);
            self.open_questions.put(key, origin, deadline);
        }
    }

    fn report_invalid(&mut self, error: &EnvelopeError) {
        report_dropped_message("dropped a message of the server", error);
    }
}

/// A copy of a message's text.
fn text_of(message: &Message<'_>) -> Bytes {
    Bytes::copy_from_slice(message.text().as_bytes())
}
