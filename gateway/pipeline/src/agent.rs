//! Requests to servers of kind `agent`, which the gateway answers itself.
//!
//! Such a server keeps no MCP session: a conversation follows from the principal and the parent session that the client
//! names. A client still gets a session id. No state belongs to it; it tells the requests of different clients apart
//! when one is cancelled.

use std::sync::Arc;

use http::StatusCode;
use tokio::sync::mpsc;

use super::answer;
use super::answer::with_session_id;
use super::built_in::{call_of, reply_to};
use super::request::ServerRequest;
use mooring_agent::server::{AgentServer, Call, CallContext, Progress, RequestName};
use mooring_protocol::{ErrorKind, Id, Kind, Message, Method, Reply, Revision};

/// Prefix of clients' session ids.
const CLIENT: &str = "agent-";
/// Most progress messages queued for the client.
const PROGRESS_WAITING_MAX: usize = 64;

/// A request for an agent server.
type AgentRequest<'a> = ServerRequest<'a, Arc<AgentServer>>;

/// Serves one message.
pub(crate) async fn post(
    request: &AgentRequest<'_>,
    message: &Message<'_>,
    revision: Revision,
) -> Reply {
    match message.kind() {
        Kind::Request => {}
        Kind::Notification => {
            if let Some(id) = message.cancelled_request()
                && let Some(name) = request_name(request, id)
            {
                request.server.cancel(&name);
            }
            return Reply::empty(StatusCode::ACCEPTED);
        }
        Kind::Result | Kind::Error => {
            return answer::plain(ErrorKind::AnswerUnexpected, message.id());
        }
    }
    let (call, id_json) = match call_of(request.server, message, revision) {
        Ok(call) => call,
        Err(reply) if message.method() == Method::Initialize => {
            return with_session_id(*reply, &client_id());
        }
        Err(reply) => return *reply,
    };
    let name = request_name(request, &id_json);
    run(request, message, revision, call, id_json, name).await
}

/// Serves one request without a session (MCP 2026-07-28). If its client leaves, its run ends.
pub(crate) async fn post_sessionless(request: &AgentRequest<'_>, message: &Message<'_>) -> Reply {
    let revision = Revision::MODERN;
    let (call, id_json) = match call_of(request.server, message, revision) {
        Ok(call) => call,
        Err(reply) => return *reply,
    };
    let name = RequestName {
        client: client_id().into(),
        id_json: id_json.clone(),
    };
    let cancelling = CancelledWithoutReader(Arc::clone(request.server), name.clone());
    let reply = run(request, message, revision, call, id_json, Some(name));
    tokio::select! {
        biased;
        reply = reply => Reply {
            body: reply.body.guarded_by(cancelling),
            ..reply
        },
        () = request.client_gone.cancelled() => Reply::empty(StatusCode::ACCEPTED),
    }
}

/// Ends the run of a request whose reply has no reader any more, unless it has ended.
struct CancelledWithoutReader(Arc<AgentServer>, RequestName);

impl Drop for CancelledWithoutReader {
    fn drop(&mut self) {
        self.0.cancel(&self.1);
    }
}

/// Runs the agent for a call.
async fn run(
    request: &AgentRequest<'_>,
    message: &Message<'_>,
    revision: Revision,
    call: Call,
    id_json: Box<str>,
    name: Option<RequestName>,
) -> Reply {
    let (progress, said) = message
        .params
        .requested_progress()
        .map(|token| {
            let (said, waiting) = mpsc::channel(PROGRESS_WAITING_MAX);
            let token_json = token.into();
            (Progress { token_json, said }, waiting)
        })
        .unzip();
    let counted = request.call.clone();
    let call_context = CallContext {
        principal: request.identity.principal.clone(),
        request: name,
        progress,
    };
    let made = call.make(call_context);
    reply_to(id_json, revision, made, said, counted).await
}

/// A new session id, to which no state belongs.
fn client_id() -> String {
    format!("{CLIENT}{:032x}", rand::random::<u128>())
}

/// Identifies a request of this client; none if the client has no id.
fn request_name(request: &AgentRequest<'_>, id_json: &str) -> Option<RequestName> {
    let client = request.fields.session.as_ref().ok()?;
    Id::from_json(id_json).ok()?;
    client.as_str().starts_with(CLIENT).then(|| RequestName {
        client: client.as_str().into(),
        id_json: id_json.into(),
    })
}
