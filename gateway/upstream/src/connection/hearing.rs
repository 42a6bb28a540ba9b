//! What a connection does with the messages of its server.
//!
//! Invariants: each message goes to exactly one stream, or waits for one, or is answered or dropped here; nothing that the
//! server says breaks the connection or reaches a request that it does not belong to.

use bytes::Bytes;
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::actor::Actor;
use super::key::Key;
use super::log::EventPart;
use super::open_questions::{QuestionOrigin, QuestionRejection};
use super::outbox::End;
use super::refusal::Refusal;
use super::route::{MessageRoute, belongs};
use mooring_protocol::{EnvelopeError, ErrorBody, ErrorKind, Message, Method, Sender, call};

/// Most messages of one batch (MCP 2025-03-26) that are looked at.
const BATCH_MESSAGES_MAX: usize = 1024;

impl Actor {
    /// Takes what the server sent: one message, or an array of them.
    pub(super) fn hear(&mut self, raw: &[u8]) {
        match Message::parse(raw, Sender::Upstream) {
            Err(EnvelopeError::Batch) => self.hear_batch(raw),
            Err(error) => self.complain_of(&error),
            Ok(message) if raw.len() > self.options.message_bytes_max => {
                self.hear_too_long(&message);
            }
            Ok(message) => self.hear_message(&message),
        }
    }

    fn hear_batch(&mut self, raw: &[u8]) {
        let messages: Vec<&RawValue> = match serde_json::from_slice(raw) {
            Ok(messages) => messages,
            Err(error) => return self.complain_of(&error.into()),
        };
        if raw.len() > self.options.message_bytes_max || messages.len() > BATCH_MESSAGES_MAX {
            let why = format!(
                "it holds {} messages in {} bytes",
                messages.len(),
                raw.len()
            );
            self.complaints.add(
                "a batch of the server is too long; its rest is dropped",
                why,
            );
        }
        let mut bytes = 0_usize;
        for message in messages.iter().take(BATCH_MESSAGES_MAX) {
            bytes = bytes.saturating_add(message.get().len());
            if bytes > self.options.message_bytes_max {
                break;
            }
            match Message::parse(message.get().as_bytes(), Sender::Upstream) {
                Ok(message) => self.hear_message(&message),
                Err(error) => self.complain_of(&error),
            }
        }
    }

    fn hear_message(&mut self, message: &Message<'_>) {
        match belongs(message) {
            MessageRoute::ItsRequest => self.hear_answer(message, text_of(message)),
            MessageRoute::TheConnection => {
                if let Some(id) = message.id() {
                    self.answer(call::empty_result(id.as_json()).into());
                }
            }
            MessageRoute::ItsToken => self.hear_progress(message),
            MessageRoute::ItsQuestion => self.hear_withdrawal(message),
            MessageRoute::ACall => match message.id() {
                Some(id) => self.hear_question(message, Key::of(id.as_json())),
                None => self.place(message, None),
            },
            MessageRoute::Nothing => self.unrelated(message, None),
        }
    }

    fn hear_answer(&mut self, message: &Message<'_>, text: Bytes) {
        let call = message
            .id()
            .and_then(|id| self.calls.finish(&Key::of(id.as_json())));
        let Some(mut call) = call else {
            let why = "no request with its id is in flight";
            return self
                .complaints
                .add("an answer of the server is dropped", why);
        };
        if call.method == Method::Initialize {
            self.negotiated.answered(message);
        }
        self.used_at = Instant::now();
        call.stream.say(&mut self.log, EventPart::Answer, text);
        call.stream.end(End::Whole);
    }

    /// A message that is too long is dropped; where it is an answer, the client learns at least that.
    fn hear_too_long(&mut self, message: &Message<'_>) {
        let why = format!("it is {} bytes long", message.text().len());
        self.complaints
            .add("a message of the server is dropped", &why);
        if message.kind().is_response() {
            let error = ErrorBody::new(ErrorKind::UpstreamInvalid)
                .answering(message.id())
                .detail(why)
                .to_bytes();
            self.hear_answer(message, error);
        }
    }

    fn hear_progress(&mut self, message: &Message<'_>) {
        let token = message.params.progress_token().map(Key::of);
        let stream = token.as_ref().and_then(|token| self.calls.wanting(token));
        if let Some(stream) = stream {
            return stream.say(&mut self.log, EventPart::Middle, text_of(message));
        }
        // A task goes on after the call that began it (MCP 2025-11-25, tasks), under the same token.
        let is_clients = token.is_some_and(|token| token.client_id().is_some());
        if is_clients && self.general.is_read() {
            self.used_at = Instant::now();
            self.general
                .say(&mut self.log, EventPart::Middle, text_of(message));
        } else {
            tracing::debug!("progress of no request in flight is dropped");
        }
    }

    /// The server withdraws a question: whoever was asked is told, unless it was answered meanwhile.
    fn hear_withdrawal(&mut self, message: &Message<'_>) {
        let Some(key) = message.params.request_id().map(Key::of) else {
            return;
        };
        match self.open_questions.take(&key) {
            None => tracing::debug!("the server withdraws a request that is not open"),
            Some(QuestionOrigin::Waiting) => self.pending_messages.remove(&key),
            Some(place) => self.say(place, text_of(message)),
        }
    }

    fn hear_question(&mut self, message: &Message<'_>, key: Key) {
        if !self.negotiated.allows(message) {
            return self.refuse(&key, Refusal::NoCapability);
        }
        match self.open_questions.check(&key) {
            Ok(()) => self.place(message, Some(key)),
            // An error would answer the first one with this id as well.
            Err(QuestionRejection::Duplicate) => {
                let why = "an earlier one with its id is open";
                self.complaints
                    .add("a request of the server is dropped", why);
            }
            Err(QuestionRejection::TooMany) => self.refuse(&key, Refusal::TooMany),
        }
    }

    /// Puts a message, which may be a question, on the stream of the call that caused it.
    fn place(&mut self, message: &Message<'_>, question: Option<Key>) {
        let Some(number) = self.calls.cause() else {
            return self.unrelated(message, question);
        };
        self.say(QuestionOrigin::Call(number), text_of(message));
        self.asked(question, QuestionOrigin::Call(number));
    }

    /// Puts a message, which may be a question, on the stream of what belongs to no call; without a reader it waits.
    fn unrelated(&mut self, message: &Message<'_>, question: Option<Key>) {
        if self.general.is_read() {
            self.used_at = Instant::now();
            self.say(QuestionOrigin::General, text_of(message));
            return self.asked(question, QuestionOrigin::General);
        }
        self.asked(question.clone(), QuestionOrigin::Waiting);
        for dropped in self.pending_messages.add(message, question) {
            let why = "too much waits for the client to listen";
            self.complaints
                .add("a message of the server is dropped", why);
            if let Some(key) = dropped.question {
                self.open_questions.take(&key);
                self.refuse(&key, Refusal::NobodyListens);
            }
        }
    }

    /// Notes where a question went.
    pub(super) fn asked(&mut self, question: Option<Key>, place: QuestionOrigin) {
        if let Some(key) = question {
            let deadline = self.answer_deadline(place);
            self.open_questions.put(key, place, deadline);
        }
    }

    fn complain_of(&mut self, error: &EnvelopeError) {
        self.complaints
            .add("a message of the server is dropped", error);
    }
}

/// The text of a message, to be kept.
pub(super) fn text_of(message: &Message<'_>) -> Bytes {
    Bytes::copy_from_slice(message.text().as_bytes())
}
