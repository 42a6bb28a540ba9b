//! The requests of one session that was opened in its client's name: the client's own, and what the gateway sends about it.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, StatusCode};
use serde::Deserialize;

use crate::request::{Request, SessionSource, UpstreamRequest};
use crate::stateful;
use mooring_protocol::{
    ErrorKind, Lane, Message, Method, Reply, ReplyBody, Revision, Sender, call,
};
use mooring_router::affinity::Session;
use mooring_upstream::Server;

/// The reason of a cancellation.
const GONE: &str = "the client has closed the stream of its request";

/// The session of a request, and its server.
#[derive(Debug)]
pub(super) struct SessionRequest {
    /// A request in the session, which counts as no call.
    pub(super) request: Request,
    session: Session,
    server: Arc<Server>,
    revision: Revision,
}

impl SessionRequest {
    pub(super) fn new(
        request: &UpstreamRequest<'_>,
        session: &Session,
        revision: Revision,
    ) -> Self {
        let mut fields = request.fields.clone();
        fields.session = Ok(session.id.clone());
        fields.revision = Ok(revision);
        fields.forwarded.revision = (revision >= Revision::V2025_06_18).then_some(revision);
        fields.forwarded.last_event_id = None;
        Self {
            request: Request {
                fields,
                session: SessionSource::Given(session.clone()),
                // Clients of one session do not know of each other's request ids.
                lane: Some(Lane(rand::random())),
                call: None,
                entry: None,
                ..request.request.clone()
            },
            session: session.clone(),
            server: Arc::clone(request.server),
            revision,
        }
    }

    /// A result has reported the loss of an earlier session, unless its client is gone.
    pub(super) async fn note_session_loss_reported(&self) {
        if !self.request.client_gone.is_cancelled() {
            let router = &self.request.core.session_router;
            router.note_session_loss_reported(&self.session).await;
        }
    }

    /// Cancels the client's request with this id.
    pub(super) async fn cancel(&self, id_json: &str) {
        self.post(call::cancelled(id_json, GONE)).await;
    }

    /// Answers a request of the server, with this id, which its client does not get.
    pub(super) async fn answer_server(&self, message: &Message<'_>, id_json: &str) {
        let text = match message.method() {
            Method::Ping => call::empty_result(id_json),
            _ => {
                let method = message.method_name().unwrap_or_default();
                tracing::info!(server = %self.server.id, method, "a request of the server was refused: its client has no session, in which it could be asked");
                call::error(id_json, &refusal(method))
            }
        };
        self.post(text).await;
    }

    async fn post(&self, text: String) {
        let text = Bytes::from(text);
        let Ok(message) = Message::parse(&text, Sender::Client) else {
            return;
        };
        let request = self.request.at(&self.server);
        let reply = stateful::post(&request, &text, &message, self.revision).await;
        if !reply.status.is_success() {
            tracing::debug!(server = %self.server.id, status = %reply.status, "a message about a client's request was refused");
        }
    }

    /// The rest of a reply after this event.
    pub(super) async fn resume(&self, last_event_id: &str) -> Option<Reply> {
        let last_event_id = HeaderValue::from_str(last_event_id).ok()?;
        let mut request = self.request.clone();
        request.fields.forwarded.last_event_id = Some(last_event_id);
        let reply = stateful::get(&request.at(&self.server)).await;
        reply.status.is_success().then_some(reply)
    }
}

/// The error for a request of the server.
fn refusal(method: &str) -> String {
    let message = format!(
        "{method}: the client cannot be asked, because it speaks MCP 2026-07-28 and has no session; this request of the server is \
         not passed on to it"
    );
    serde_json::json!({"code": ErrorKind::NoSingleClient.code(), "message": message}).to_string()
}

/// Whether a reply says that its session has ended. Nothing was executed.
pub(super) fn has_ended(reply: &Reply) -> bool {
    #[derive(Deserialize)]
    struct ErrorReply {
        error: CodeOnly,
    }
    #[derive(Deserialize)]
    struct CodeOnly {
        code: i64,
    }
    let ReplyBody::Json(text) = &reply.body else {
        return false;
    };
    reply.status == StatusCode::NOT_FOUND
        && serde_json::from_slice::<ErrorReply>(text)
            .is_ok_and(|reply| reply.error.code == i64::from(ErrorKind::SessionNotFound.code()))
}
