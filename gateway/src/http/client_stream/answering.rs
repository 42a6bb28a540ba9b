//! Serves a message of a client that has a single stream: as if it had arrived over Streamable HTTP, with its reply
//! written onto the stream.
//!
//! Invariant: a request gets exactly one response on the stream, the server's or an error instead, unless the stream
//! ends.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::ACCEPT;
use http::{HeaderMap, HeaderValue, StatusCode};

use super::super::endpoint::{self, RequestContext, is_initialize};
use super::super::request_entry::RequestEntry;
use super::super::{App, answer};
use super::finish_if_over;
use super::initialize::initialize;
use super::reading::{ReplyEnd, write_reply};
use crate::client_stream::{NegotiatedSession, OpenStream};
use mooring_protocol::envelope::Sender;
use mooring_protocol::header::{LAST_EVENT_ID, MCP_PROTOCOL_VERSION, MCP_SESSION_ID};
use mooring_protocol::{
    ErrorBody, ErrorKind, Id, Lane, Message, Method, Reply, Revision, VersionError, call,
};
use mooring_usage::CallPermit;

/// Most consecutive failed attempts to resume a reply.
const RESUMES_MAX: u32 = 5;
/// First and longest pause before the stream of unrelated messages is reopened.
const LISTEN_PAUSE: Duration = Duration::from_millis(500);
/// See [`LISTEN_PAUSE`].
const LISTEN_PAUSE_MAX: Duration = Duration::from_secs(30);

/// The stream that a message belongs to, and the headers that came with it.
#[derive(Clone, Debug)]
pub(in super::super) struct StreamContext {
    pub(in super::super) app: Arc<App>,
    pub(in super::super) stream: Arc<OpenStream>,
    pub(in super::super) headers: HeaderMap,
    /// Tells the clients of one session apart, where there may be several.
    pub(in super::super) lane: Option<Lane>,
    /// Counts the message among the calls of its sender; none if it is no request.
    pub(in super::super) call: Option<Arc<CallPermit>>,
}

/// Serves a request and writes its reply onto the stream.
pub(in super::super) async fn answer_request(context: &StreamContext, body: &Bytes) {
    let Ok(message) = Message::parse(body, Sender::Client) else {
        return;
    };
    let Some(id) = message.id() else {
        return;
    };
    let reply = if is_initialize(&message) {
        initialize(context, body, &message).await
    } else {
        serve(context, body, &message).await
    };
    tokio::select! {
        () = context.stream.ended() => {}
        () = read_answer(context, id, reply) => {}
    }
}

/// Serves any message except `initialize`.
pub(in super::super) async fn serve(
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
            (_, id) => answer::error(
                &ErrorBody::new(ErrorKind::InvalidRequest)
                    .answering(id)
                    .detail("the client has to initialize first"),
            ),
        };
    };
    let revision = match revision_of(&context.headers, negotiated.revision) {
        Ok(revision) => revision,
        Err(cause) => return answer::error(&ErrorBody::from(&cause).answering(message.id())),
    };
    match context.request_context(Some(&negotiated)) {
        Some(context) => serve_watched(context, body, message, revision).await,
        None => answer::plain(ErrorKind::ServerNotFound, message.id()),
    }
}

/// Serves a message as a request of its own.
pub(super) async fn serve_watched(
    mut context: RequestContext,
    body: &Bytes,
    message: &Message<'_>,
    revision: Revision,
) -> Reply {
    let entry = RequestEntry::begin(&context.app.request_log, &mut context.headers);
    entry.note_user(&context.identity.principal);
    entry.note_body(body.len());
    if let Some(session) = &context.begun {
        entry.note_session(&session.digest);
    }
    context.entry = Some(Arc::clone(&entry));
    entry.watch(endpoint::serve_message(context, body, message, revision).await)
}

/// The revision of a message after `initialize`.
fn revision_of(headers: &HeaderMap, negotiated: Revision) -> Result<Revision, VersionError> {
    match headers.get(MCP_PROTOCOL_VERSION) {
        Some(named) if named == negotiated.as_str() => Ok(negotiated),
        Some(_) => Revision::of_headers(headers),
        None => Ok(negotiated),
    }
}

impl StreamContext {
    /// The equivalent request of a client of Streamable HTTP.
    pub(super) fn request_context(
        &self,
        negotiated: Option<&NegotiatedSession>,
    ) -> Option<RequestContext> {
        let mut headers = self.headers.clone();
        if let Some(negotiated) = negotiated {
            if let Some(session_header) = &negotiated.session_header {
                headers.insert(MCP_SESSION_ID, session_header.clone());
            }
            // Clients of this transport need not send the revision header; those of Streamable HTTP must, from the
            // revision on that introduced it.
            if negotiated.revision >= Revision::V2025_06_18 {
                let named = HeaderValue::from_static(negotiated.revision.as_str());
                headers.insert(MCP_PROTOCOL_VERSION, named);
            } else {
                headers.remove(MCP_PROTOCOL_VERSION);
            }
        }
        let session = &self.stream.session;
        let server = self
            .app
            .target_for(self.stream.server.as_str(), &self.stream.identity)?;
        Some(RequestContext {
            endpoint: server.clone(),
            server,
            app: Arc::clone(&self.app),
            identity: Arc::clone(&self.stream.identity),
            headers,
            begun: Some(session.clone()),
            lane: self.lane,
            client_gone: self.stream.over(),
            usage: Arc::clone(&self.stream.usage),
            call: self.call.clone(),
            entry: None,
        })
    }

    /// Sends a GET for the stream of unrelated messages, or for the events after `last_event_id`.
    async fn get(&self, last_event_id: Option<HeaderValue>) -> Reply {
        let negotiated = self.stream.negotiated();
        let Some(mut context) = self.request_context(negotiated.as_ref()) else {
            return answer::plain(ErrorKind::ServerNotFound, None);
        };
        let headers = &mut context.headers;
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        if let Some(id) = last_event_id {
            headers.insert(LAST_EVENT_ID, id);
        }
        endpoint::get(context).await
    }
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
            finish_if_over(&context.stream, early.status);
            return;
        };
        tokio::time::sleep(early.pause).await;
        let rest = context.get(Some(last_event_id)).await;
        read = write_reply(context, Some(id), rest).await;
    }
    finish_if_over(&context.stream, first_status);
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
pub(in super::super) async fn listen(context: StreamContext) {
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
            finish_if_over(&context.stream, status);
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
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    #[test]
    fn the_revision_is_the_negotiated_one_where_none_is_named() {
        let of = |named: Option<&'static str>| {
            let named = named.map(|name| (MCP_PROTOCOL_VERSION, HeaderValue::from_static(name)));
            revision_of(&HeaderMap::from_iter(named), Revision::V2024_11_05).ok()
        };
        assert_eq!(of(None), Some(Revision::V2024_11_05));
        assert_eq!(of(Some("2024-11-05")), Some(Revision::V2024_11_05));
        assert_eq!(of(Some("2025-06-18")), Some(Revision::V2025_06_18));
        assert_eq!(of(Some("2026-07-28")), None);
    }
}
