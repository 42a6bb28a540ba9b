//! Batches: several messages in one POST, which 2025-03-26 requires servers to accept and 2025-06-18 abolished.
//!
//! Each entry is served as if it had been posted alone, one after another. The replies go onto one event stream: each
//! response, preceded by the server's messages during its request. Invariants: a batch with an invalid entry is refused
//! before any entry is served; each request gets one response; memory is bounded by one entry's reply and
//! [`UNREAD_MAX`] messages, of which long ones take the memory of their user. An entry starts
//! when the previous one is answered, also after the client has disconnected.

use bytes::Bytes;
use http::StatusCode;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::answer;
use super::delayed_answer::streamed;
use super::directory::ServerTarget;
use super::pipeline::serve_posted;
use super::request::{Request, is_initialize};
use mooring_protocol::envelope::Sender;
use mooring_protocol::{
    EnvelopeError, ErrorBody, ErrorKind, Event, Id, Kind, Message, Reply, ReplyMessages, Revision,
    call,
};
use mooring_usage::for_same_user;

/// Most messages of one batch.
const ENTRIES_MAX: usize = 64;
/// Most messages queued for a client that reads slowly.
const UNREAD_MAX: usize = 8;

/// One message of a batch.
struct BatchEntry {
    text: Bytes,
    /// The id as JSON text, if it is a request.
    request_id: Option<Box<str>>,
}

/// Serves a batch. Refused if the client's revision has no batches.
pub async fn serve_batch(request: Request, server: ServerTarget, body: &Bytes) -> Reply {
    if let Some(entry) = &request.entry {
        entry.note_batch();
    }
    match &request.fields.revision {
        Ok(revision) if *revision >= Revision::V2025_06_18 => {
            return answer::error(&ErrorBody::from(&EnvelopeError::Batch));
        }
        Ok(_) => {}
        Err(cause) => return answer::error(&ErrorBody::from(cause)),
    }
    let entries = match entries(body) {
        Ok(entries) => entries,
        Err(error) => return answer::error(&error),
    };
    // The first was counted with the request.
    let others = u32::try_from(entries.len().saturating_sub(1)).unwrap_or(u32::MAX);
    if let Err(wait) = request.core.count_requests(&request.identity, others) {
        return answer::too_many_requests(wait);
    }
    let mut entries = entries.into_iter();
    // The first refusal usually concerns the whole request, such as its session.
    let mut first = None;
    for entry in entries.by_ref() {
        let reply = serve(&request, &server, &entry).await;
        if !reply.status.is_success() {
            return reply;
        }
        if let Some(id_json) = entry.request_id {
            first = Some((reply, id_json));
            break;
        }
    }
    let Some((reply, id_json)) = first else {
        return Reply::empty(StatusCode::ACCEPTED);
    };
    let (messages, before) = mpsc::channel(UNREAD_MAX);
    let client = BatchClient {
        message_bytes_max: request.core.relay.message_bytes_max,
        messages,
    };
    let task = tokio::spawn(for_same_user(async move {
        let mut answer = client.write_messages(reply, &id_json).await;
        for entry in entries {
            if entry.request_id.is_some() {
                // The last response is the task's result, which ends the stream.
                client.write(std::mem::take(&mut answer)).await;
            }
            let reply = serve(&request, &server, &entry).await;
            if let Some(id_json) = &entry.request_id {
                answer = client.write_messages(reply, id_json).await;
            }
        }
        answer
    }));
    streamed(task, Some(before), None, "null".into())
}

/// Serves one entry. It is completed even if the client disconnects.
async fn serve(request: &Request, server: &ServerTarget, entry: &BatchEntry) -> Reply {
    let mut request = Request {
        // A disconnect does not say which of the requests the client cancels.
        client_gone: CancellationToken::new(),
        ..request.clone()
    };
    let noted = request.begin_entry(entry.text.len());
    let parsed = Message::parse(&entry.text, Sender::Client);
    noted.watch(serve_posted(&request, server, &entry.text, parsed).await)
}

/// Parses and checks the messages of a batch.
fn entries(body: &Bytes) -> Result<Vec<BatchEntry>, ErrorBody<'static>> {
    let invalid = |detail: String| ErrorBody::new(ErrorKind::InvalidRequest).detail(detail);
    let texts: Vec<&RawValue> = serde_json::from_slice(body.trim_ascii())
        .map_err(|cause| ErrorBody::new(ErrorKind::Parse).detail(cause))?;
    if texts.is_empty() || texts.len() > ENTRIES_MAX {
        let count = texts.len();
        return Err(invalid(format!(
            "a batch has 1 to {ENTRIES_MAX} messages, this one has {count}"
        )));
    }
    let read = |(at, text): (usize, &&RawValue)| {
        let message = Message::parse(text.get().as_bytes(), Sender::Client)
            .map_err(|cause| invalid(format!("message {at} of the batch: {cause}")))?;
        if is_initialize(&message) {
            return Err(invalid("initialize may not be part of a batch".to_owned()));
        }
        if message.params.is_modern() {
            let detail = "a request without a session may not be part of a batch (MCP 2026-07-28)";
            return Err(invalid(detail.to_owned()));
        }
        let id = message.id().filter(|_| message.kind() == Kind::Request);
        Ok(BatchEntry {
            text: body.slice_ref(text.get().as_bytes()),
            request_id: id.map(|id| id.as_json().into()),
        })
    };
    (1..).zip(&texts).map(read).collect()
}

/// Writes messages to the client of a batch.
struct BatchClient {
    message_bytes_max: usize,
    messages: mpsc::Sender<Event>,
}

impl BatchClient {
    /// Writes the messages that precede a request's response, and returns the response.
    async fn write_messages(&self, reply: Reply, id_json: &str) -> Event {
        let id = Id::from_json(id_json).ok();
        let status = reply.status;
        let mut messages = ReplyMessages::of(reply, self.message_bytes_max);
        while let Ok(Some(text)) = messages.next().await {
            let Ok(message) = Message::parse(&text, Sender::Upstream) else {
                break;
            };
            let event = Event {
                held: messages.take_held(),
                ..Event::message(text.slice_ref(message.text().as_bytes()))
            };
            if !message.kind().is_response() {
                self.write(event).await;
                continue;
            }
            if message.id() == id {
                return event;
            }
            if message.id().is_none()
                && let Some(error) = message.outcome()
            {
                return Event::message(call::error(id_json, error));
            }
        }
        unanswered(status, id)
    }

    async fn write(&self, event: Event) {
        // If the client has disconnected, the message is dropped.
        let _ = self.messages.send(event).await;
    }
}

/// The error for a request that got no response.
fn unanswered(status: StatusCode, id: Option<Id<'_>>) -> Event {
    let body = if status.is_success() {
        ErrorBody::new(ErrorKind::OutcomeUnknown)
    } else {
        ErrorBody::new(ErrorKind::UpstreamInvalid).detail(format_args!("HTTP status {status}"))
    };
    Event::message(body.answering(id).to_bytes())
}
