//! A client's `initialize`, which opens its server in the session that began with the stream.
//!
//! Invariant: what later messages need is stored before the client can see the response.

use bytes::Bytes;
use mooring_session::names::SessionId;

use super::open_stream::NegotiatedSession;
use super::stream_context::{StreamContext, serve_watched};
use crate::answer;
use mooring_protocol::envelope::Sender;
use mooring_protocol::{ErrorKind, Kind, Message, Reply, ReplyMessages, Revision};

/// Serves the client's `initialize`, and stores what later messages need.
pub(crate) async fn initialize(
    context: &StreamContext,
    body: &Bytes,
    message: &Message<'_>,
) -> Reply {
    if !context.stream.begin_initialize() {
        return answer::detailed(
            ErrorKind::InvalidRequest,
            message.id(),
            "the client has initialized already",
        );
    }
    let revision = revision_for(message);
    let reply = match context.request(None) {
        Some(request) => serve_watched(request, body, message, revision).await,
        None => answer::plain(ErrorKind::ServerNotFound, message.id()),
    };
    let (reply, negotiated) = read_negotiated(
        reply,
        context.directory.core.relay.message_bytes_max,
        revision,
    )
    .await;
    context.stream.end_initialize(negotiated);
    reply
}

/// The revision in which to serve an `initialize`.
pub(crate) fn revision_for(message: &Message<'_>) -> Revision {
    let asked_for = message.params.protocol_version().unwrap_or_default();
    Revision::negotiated(&asked_for)
}

/// Reads what an `initialize` reply negotiates. Returns the reply again as JSON.
async fn read_negotiated(
    reply: Reply,
    message_bytes_max: usize,
    asked_for: Revision,
) -> (Reply, Option<NegotiatedSession>) {
    let session_id = reply.session_id.as_ref();
    let session_id = session_id.and_then(|id| SessionId::parse(id.as_bytes()).ok());
    let mut messages = ReplyMessages::of(reply, message_bytes_max);
    let status = messages.status;
    let mut text = None;
    while let Ok(Some(next)) = messages.next().await {
        let is_result = Message::parse(&next, Sender::Upstream)
            .is_ok_and(|message| message.kind() == Kind::Result);
        text = Some(next);
        if is_result {
            break;
        }
    }
    let text = text.unwrap_or_default();
    let negotiated = status
        .is_success()
        .then(|| negotiated_by(&text, session_id, asked_for))
        .flatten();
    let reply = Reply::json(status, text);
    (reply, negotiated)
}

/// The parameters that an `initialize` result negotiates; none if the text is no result.
pub(crate) fn negotiated_by(
    text: &[u8],
    session_id: Option<SessionId>,
    asked_for: Revision,
) -> Option<NegotiatedSession> {
    let named = revision_in(text)?;
    Some(NegotiatedSession {
        session_id,
        revision: Revision::named(&named).unwrap_or(asked_for),
    })
}

/// The revision in an `initialize` result; none if it is no result.
fn revision_in(text: &[u8]) -> Option<Box<str>> {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct InitializeResult {
        #[serde(default)]
        protocol_version: Box<str>,
    }
    let message = Message::parse(text, Sender::Upstream).ok()?;
    if message.kind() != Kind::Result {
        return None;
    }
    let result: InitializeResult = serde_json::from_str(message.outcome()?).ok()?;
    Some(result.protocol_version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_result_introduces() {
        let result = r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2024-11-05"}}"#;
        assert_eq!(
            revision_in(result.as_bytes()).as_deref(),
            Some("2024-11-05")
        );
        let error = r#"{"jsonrpc":"2.0","id":0,"error":{"code":-32009,"message":"away"}}"#;
        assert_eq!(revision_in(error.as_bytes()), None);
        assert_eq!(revision_in(b"<html>"), None);
    }
}
