//! Requests to servers of kind `code`, which the gateway answers itself.
//!
//! Such a server keeps no MCP session: all its state follows from the principal, and from the name of the
//! client where `code.session_by` says so. So there is no stream to GET and
//! nothing to DELETE. A client that can answer elicitations still gets a session id, since only its `initialize` says
//! so: the id encodes just that (see [`asking_id`]).
//!
//! Questions of tools during a run are sent before the response (see [`super::delayed_answer`]).

use std::sync::Arc;

use http::{HeaderValue, StatusCode};

use super::answer;
use super::answer::with_session_id;
use super::built_in::{call_of, reply_to};
use super::nested_servers::NestedServers;
use super::request::ServerRequest;
use mooring_code::calls::{AnswerPlace, RunClient, Upstreams as _};
use mooring_code::place::ClientNameError;
use mooring_code::server::{CallContext, Caller, CodeServer};
use mooring_protocol::{ErrorKind, Kind, Message, Method, Reply, Revision};

/// Prefix of the ids of clients that can answer questions.
const ASKING: &str = "asking-";

/// A request for a code server.
type CodeRequest<'a> = ServerRequest<'a, Arc<CodeServer>>;

/// Serves one message.
pub(crate) async fn post(
    request: &CodeRequest<'_>,
    message: &Message<'_>,
    revision: Revision,
) -> Reply {
    match message.kind() {
        Kind::Request => {}
        // Notifications have no effect: a run ends when it is done or at its limits.
        Kind::Notification => return Reply::empty(StatusCode::ACCEPTED),
        Kind::Result | Kind::Error => return answered(request, message).await,
    }
    let (call, id_json) = match call_of(request.server, message, revision) {
        Ok(call) => call,
        Err(reply) if message.method() == Method::Initialize && can_be_asked(message) => {
            return with_session_id(*reply, &asking_id());
        }
        Err(reply) => return *reply,
    };
    let (client, questions) = match &request.fields.session {
        Ok(id) if id.as_str().starts_with(ASKING) => {
            let (client, questions) = RunClient::asked();
            (client, Some(questions))
        }
        _ => (RunClient::silent(), None),
    };
    let caller = match caller(request) {
        Ok(caller) => caller,
        Err(error) => return answer::detailed(ErrorKind::InvalidRequest, message.id(), error),
    };
    let counted = request.call.clone();
    let call_context = CallContext {
        caller,
        upstreams: Arc::new(NestedServers::of_caller(&request.core, &request.identity)),
        client,
    };
    let made = call.make(call_context);
    reply_to(id_json, revision, made, questions, counted).await
}

/// Delivers a client's answer to a question that a tool asked during a run.
async fn answered(request: &CodeRequest<'_>, message: &Message<'_>) -> Reply {
    let caller = match caller(request) {
        Ok(caller) => caller,
        Err(error) => return answer::detailed(ErrorKind::InvalidRequest, message.id(), error),
    };
    let place = message.id().and_then(|id| AnswerPlace::read(id.as_json()));
    let session = place.as_ref().and_then(|place| {
        let session = request.server.session_of(&caller, place.language);
        session.ok()
    });
    let reply = place.as_ref().and_then(|place| place.answer(message));
    match (place, session, reply) {
        (Some(place), Some(session), Some(reply)) => {
            let inside = NestedServers::of_caller(&request.core, &request.identity);
            inside.send(&session, place.server.as_str(), reply).await
        }
        _ => answer::plain(ErrorKind::AnswerUnexpected, message.id()),
    }
}

/// The caller, from the request's identity and fields.
fn caller(request: &CodeRequest<'_>) -> Result<Caller, ClientNameError> {
    let name = request.fields.client_name.as_ref();
    Ok(Caller {
        principal: request.identity.principal.clone(),
        teams: Arc::clone(&request.identity.teams),
        client: request.server.client(name.map(HeaderValue::as_bytes))?,
    })
}

/// Whether a client's `initialize` declares that it answers questions.
fn can_be_asked(message: &Message<'_>) -> bool {
    #[derive(serde::Deserialize)]
    struct Params {
        capabilities: Capabilities,
    }
    #[derive(serde::Deserialize)]
    struct Capabilities {
        elicitation: Option<serde::de::IgnoredAny>,
    }
    message
        .raw_params()
        .and_then(|params| serde_json::from_str::<Params>(params).ok())
        .is_some_and(|params| params.capabilities.elicitation.is_some())
}

/// A session id for a client that can answer questions. Any gateway reads that from the id, and no state belongs to it:
/// a client that forges one only claims this capability for itself.
fn asking_id() -> String {
    format!("{ASKING}{:032x}", rand::random::<u128>())
}
