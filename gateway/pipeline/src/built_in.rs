//! Requests to code, agent and admin servers, which the gateway serves itself: immediate replies, and starting a call.

use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;

use super::answer;
use super::delayed_answer::{Before, reply_or_stream};
use mooring_protocol::modern::complete_result;
use mooring_protocol::tool_server::{ToolServerReply, handle_request};
use mooring_protocol::{ErrorKind, Message, Reply, Revision, ToolServer, call};
use mooring_usage::{CallPermit, for_same_user};

/// The call that a request asks for, with the request's id as JSON text.
///
/// # Errors
/// The reply, if the request needs no call.
pub(crate) fn call_of<S: ToolServer>(
    server: &Arc<S>,
    message: &Message<'_>,
    revision: Revision,
) -> Result<(S::Call, Box<str>), Box<Reply>> {
    let Some(id) = message.id() else {
        return Err(Box::new(answer::plain(ErrorKind::InvalidRequest, None)));
    };
    let reply = match handle_request(server, message, revision) {
        ToolServerReply::Call(call) => return Ok((call, id.as_json().into())),
        ToolServerReply::Result(result) => {
            let text = call::result(id.as_json(), &result);
            Reply::json(StatusCode::OK, text)
        }
        ToolServerReply::Error(error) => answer::error(&error),
    };
    Err(Box::new(reply))
}

/// Runs a call to its end, even if the client disconnects. It counts as `call` until then. Messages of `before` are sent
/// ahead of the response.
pub(crate) async fn reply_to(
    id_json: Box<str>,
    revision: Revision,
    making: impl Future<Output = String> + Send + 'static,
    before: Before,
    call: Option<Arc<CallPermit>>,
) -> Reply {
    let answered_id = id_json.clone();
    let task = tokio::spawn(for_same_user(async move {
        let _until_made = call;
        let result = match revision.is_modern() {
            true => complete_result(&making.await, None),
            false => making.await,
        };
        Bytes::from(call::result(&answered_id, &result))
    }));
    reply_or_stream(task, before, id_json).await
}
