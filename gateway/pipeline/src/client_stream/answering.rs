//! Serves a message of a client that has a single stream: as a request like any other, with its reply written onto the
//! stream.
//!
//! Invariant: a request gets exactly one response on the stream, the server's or an error instead, unless the stream
//! ends.

use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;

use super::initialize::initialize;
use super::reading::{ReplyEnd, write_reply};
use super::stream_context::{StreamContext, serve_watched};
use crate::answer;
use crate::request::{RequestFields, is_initialize};
use mooring_protocol::envelope::Sender;
use mooring_protocol::{
    ErrorBody, ErrorKind, Id, Message, Method, Reply, Revision, VersionError, call,
};

/// Most consecutive failed attempts to resume a reply.
const RESUMES_MAX: u32 = 5;
/// First and longest pause before the stream of unrelated messages is reopened.
const LISTEN_PAUSE: Duration = Duration::from_millis(500);
/// See [`LISTEN_PAUSE`].
const LISTEN_PAUSE_MAX: Duration = Duration::from_secs(30);

/// Serves a request and writes its reply onto the stream.
pub(crate) async fn answer_request(context: &StreamContext, body: &Bytes) {
    let Ok(message) = Message::parse(body, Sender::Client) else {
        return;
    };
    let Some(id) = message.id() else {
        return;
    };
    let reply = if is_initialize(&message) {
        initialize(context, body, &message).await
    } else {
        serve_message(context, body, &message).await
    };
    tokio::select! {
        () = context.stream.ended() => {}
        () = read_answer(context, id, reply) => {}
    }
}

/// Serves any message except `initialize`.
pub(crate) async fn serve_message(
    context: &StreamContext,
    body: &Bytes,
    message: &Message<'_>,
) -> Reply {
    let Some(negotiated) = context.stream.negotiated() else {
        // Before `initialize` a client may only ping.
        return match (message.method(), message.id()) {
            (Method::Ping, Some(id)) => {
                Reply::json(StatusCode::OK, call::empty_result(id.as_json()))
            }
            (_, id) => answer::detailed(
                ErrorKind::InvalidRequest,
                id,
                "the client has to initialize first",
            ),
        };
    };
    let revision = match revision_of(&context.fields, negotiated.revision) {
        Ok(revision) => revision,
        Err(cause) => return answer::error(&ErrorBody::from(&cause).answering(message.id())),
    };
    match context.request(Some(&negotiated)) {
        Some(request) => serve_watched(request, body, message, revision).await,
        None => answer::plain(ErrorKind::ServerNotFound, message.id()),
    }
}

/// The revision of a message after `initialize`: clients of this transport need not name it.
fn revision_of(fields: &RequestFields, negotiated: Revision) -> Result<Revision, VersionError> {
    let named = fields.forwarded.revision;
    fields.revision.clone().map(|_| named.unwrap_or(negotiated))
}

/// Writes a reply onto the stream until the request `id` is answered, resuming it where it ends early and can be
/// resumed. If there is no response, an error is written instead.
async fn read_answer(context: &StreamContext, id: Id<'_>, reply: Reply) {
    let first_status = reply.status;
    let mut read = write_reply(context, Some(id), reply).await;
    let mut resume_after = None;
    let mut failures = 0_u32;
    while let ReplyEnd::Early(early) = read {
        failures = if early.had_messages {
            0
        } else {
            failures.saturating_add(1)
        };
        // A failed GET names no event to resume after; then the previous one still applies.
        resume_after = early.last_event_id.or(resume_after);
        let may_resume = is_retryable(early.status) && failures < RESUMES_MAX;
        let Some(last_event_id) = resume_after.clone().filter(|_| may_resume) else {
            give_up(context, id, first_status, early.nameless_error.as_deref()).await;
            context.stream.finish_if_over(early.status);
            return;
        };
        tokio::time::sleep(early.pause).await;
        let rest = context.get(Some(last_event_id)).await;
        read = write_reply(context, Some(id), rest).await;
    }
    context.stream.finish_if_over(first_status);
}

/// Writes an error in place of a missing response. `status` is that of the reply that should contain it, and `error` an
/// error in that reply that has no request id.
async fn give_up(context: &StreamContext, id: Id<'_>, status: StatusCode, error: Option<&str>) {
    let text = match error {
        Some(error) => call::error(id.as_json(), error),
        None => {
            let body = if status.is_success() {
                ErrorBody::new(ErrorKind::OutcomeUnknown)
            } else {
                ErrorBody::new(ErrorKind::UpstreamInvalid)
                    .detail(format!("HTTP status {}", status.as_u16()))
            };
            String::from_utf8_lossy(&body.answering(Some(id)).to_bytes()).into_owned()
        }
    };
    // If the stream has ended, the error is dropped.
    let _ = context.stream.send(&text, None).await;
}

/// Writes messages that answer no request onto the stream while it is open: what a client of Streamable HTTP would GET.
pub(crate) async fn listen(context: StreamContext) {
    tokio::select! {
        () = context.stream.ended() => {}
        () = listen_always(&context) => {}
    }
}

async fn listen_always(context: &StreamContext) {
    let mut pause = LISTEN_PAUSE;
    let mut resume_after = None;
    loop {
        let reply = context.get(resume_after.take()).await;
        let status = reply.status;
        if !is_retryable(status) {
            context.stream.finish_if_over(status);
            return;
        }
        if status.is_success() {
            match write_reply(context, None, reply).await {
                ReplyEnd::Done => return,
                ReplyEnd::Early(early) => {
                    resume_after = early.last_event_id;
                    if early.had_messages {
                        pause = LISTEN_PAUSE;
                    }
                }
            }
        }
        tokio::time::sleep(pause).await;
        pause = pause.saturating_mul(2).min(LISTEN_PAUSE_MAX);
    }
}

/// Whether a GET with this status is worth repeating. A server without such a stream refuses with 405 or another client
/// error.
fn is_retryable(status: StatusCode) -> bool {
    status.is_success()
        || status.is_server_error()
        || matches!(
            status,
            StatusCode::CONFLICT | StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_revision_is_the_negotiated_one_where_none_is_named() {
        let of = |named: Option<Revision>| {
            let mut fields = RequestFields::default();
            fields.forwarded.revision = named;
            revision_of(&fields, Revision::V2024_11_05)
        };
        assert_eq!(of(None), Ok(Revision::V2024_11_05));
        for named in [Revision::V2024_11_05, Revision::V2025_06_18] {
            assert_eq!(of(Some(named)), Ok(named));
        }
        let unserved = VersionError::Unsupported("2026-07-28".to_owned());
        let fields = RequestFields {
            revision: Err(unserved.clone()),
            ..RequestFields::default()
        };
        assert_eq!(revision_of(&fields, Revision::V2024_11_05), Err(unserved));
    }
}
