//! Requests to servers of kind `code`, which the gateway answers itself.
//!
//! Such a server keeps no MCP session: all its state follows from the principal. So it gives no session id, takes none,
//! and has neither a stream to GET nor anything to DELETE.
//!
//! An answer that is soon there is JSON. One that takes its time comes as an event stream, whose comments keep proxies
//! from closing it. The call goes on whoever still listens.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::response::Response;
use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, StatusCode};
use http_body::{Body, Frame};
use mooring_session::names::Principal;
use tokio::task::JoinHandle;
use tokio::time::{Instant, Sleep};

use super::answer;
use crate::code::server::{Asked, CodeServer};
use crate::dispatch::{ReplyBody, empty};
use crate::mcp::event::{Event, comment};
use crate::mcp::header::X_ACCEL_BUFFERING;
use crate::mcp::{ErrorBody, ErrorKind, Kind, Message, Revision};

/// How long an answer may take before its head is sent without it.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// How long the stream may then be silent, well under the usual 60 s of proxies.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// One message.
pub(super) async fn post(
    server: &Arc<CodeServer>,
    principal: &Principal,
    message: &Message<'_>,
    revision: Revision,
) -> Response {
    match message.kind() {
        Kind::Request => {}
        // What a client tells here changes nothing: a run ends by itself, or at its limits.
        Kind::Notification => return empty(StatusCode::ACCEPTED),
        Kind::Result | Kind::Error => {
            return answer::plain(ErrorKind::AnswerUnexpected, message.id());
        }
    }
    let Some(id) = message.id() else {
        return answer::plain(ErrorKind::InvalidRequest, None);
    };
    let id_json: Box<str> = id.as_json().into();
    match server.asked(principal, message, revision) {
        Asked::Result(result) => answer::json(StatusCode::OK, response(&id_json, &result)),
        Asked::Error(error) => answer::error(&error),
        Asked::Call(call) => {
            let answered_id = id_json.clone();
            let task = tokio::spawn(async move { response(&answered_id, &call.make().await) });
            soon_or_streamed(task, id_json).await
        }
    }
}

/// GET and DELETE.
pub(super) fn not_allowed() -> Response {
    let mut reply = answer::error(
        &ErrorBody::new(ErrorKind::MethodNotAllowed)
            .detail("this server keeps no MCP sessions; everything is a POST"),
    );
    let allowed = HeaderValue::from_static("POST");
    reply.headers_mut().insert(ALLOW, allowed);
    reply
}

fn response(id_json: &str, result: &str) -> Bytes {
    Bytes::from(format!(
        r#"{{"jsonrpc":"2.0","id":{id_json},"result":{result}}}"#
    ))
}

async fn soon_or_streamed(mut task: JoinHandle<Bytes>, id_json: Box<str>) -> Response {
    match tokio::time::timeout(ANSWER_WITHIN, &mut task).await {
        Ok(Ok(text)) => answer::json(StatusCode::OK, text),
        Ok(Err(_)) => answer::json(StatusCode::INTERNAL_SERVER_ERROR, defect(&id_json)),
        Err(_) => streamed(task, id_json),
    }
}

fn streamed(task: JoinHandle<Bytes>, id_json: Box<str>) -> Response {
    let body = Late {
        task: Some(task),
        id_json,
        // At once, so that the client sees a living stream.
        silent_until: Box::pin(tokio::time::sleep(Duration::ZERO)),
    };
    let mut reply = Response::new(ReplyBody::new(body));
    let headers = reply.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(X_ACCEL_BUFFERING, HeaderValue::from_static("no"));
    reply
}

/// The JSON-RPC error of a call whose task ended by itself.
fn defect(id_json: &str) -> Bytes {
    let id = crate::mcp::Id::from_json(id_json).ok();
    ErrorBody::new(ErrorKind::Internal).answering(id).to_bytes()
}

/// A stream that will hold one answer.
struct Late {
    /// None once it has come.
    task: Option<JoinHandle<Bytes>>,
    id_json: Box<str>,
    silent_until: Pin<Box<Sleep>>,
}

impl Body for Late {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let late = self.get_mut();
        let Some(task) = &mut late.task else {
            return Poll::Ready(None);
        };
        if let Poll::Ready(ended) = Pin::new(task).poll(context) {
            late.task = None;
            let text = ended.unwrap_or_else(|_| defect(&late.id_json));
            // The answer is JSON, and so is text.
            let text = String::from_utf8_lossy(&text);
            return Poll::Ready(Some(Ok(Frame::data(Event::message(&text).encode()))));
        }
        if late.silent_until.as_mut().poll(context).is_pending() {
            return Poll::Pending;
        }
        let next = Instant::now() + KEEP_ALIVE;
        late.silent_until.as_mut().reset(next);
        // The timer has to be asked again, or nobody is woken by it.
        let _ = late.silent_until.as_mut().poll(context);
        Poll::Ready(Some(Ok(Frame::data(comment("keep-alive")))))
    }
}
