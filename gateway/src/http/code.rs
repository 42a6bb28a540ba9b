//! Requests to servers of kind `code`, which the gateway answers itself.
//!
//! Such a server keeps no MCP session: all its state follows from the principal. So it has neither a stream to GET nor
//! anything to DELETE. A client that can be asked questions is given a session id all the same, because it says so in its
//! `initialize` alone: the id carries nothing but that (see [`asking_id`]).
//!
//! What a tool asks during a run is said before the answer (see [`super::delayed_answer`]).

use std::sync::Arc;

use http::{HeaderMap, StatusCode};

use super::built_in::{call_of, reply_to};
use super::endpoint::{session_id, with_session_id};
use super::nested_servers::NestedServers;
use super::{App, answer};
use mooring_code::calls::{AnswerPlace, RunClient, Upstreams as _};
use mooring_code::server::{CallContext, Caller, CodeServer};
use mooring_protocol::{ErrorKind, Kind, Message, Method, Reply, Revision};

/// What the id of a client begins with that can be asked.
const ASKING: &str = "asking-";

/// A request for a code server.
#[derive(Clone, Debug)]
pub(super) struct CodeContext {
    pub(super) app: Arc<App>,
    pub(super) server: Arc<CodeServer>,
    pub(super) caller: Caller,
    pub(super) headers: HeaderMap,
}

/// One message.
pub(super) async fn post(
    context: &CodeContext,
    message: &Message<'_>,
    revision: Revision,
) -> Reply {
    match message.kind() {
        Kind::Request => {}
        // What a client tells here changes nothing: a run ends by itself, or at its limits.
        Kind::Notification => return Reply::empty(StatusCode::ACCEPTED),
        Kind::Result | Kind::Error => return answered(context, message).await,
    }
    let (call, id_json) = match call_of(&context.server, message, revision) {
        Ok(call) => call,
        Err(reply) if message.method() == Method::Initialize && can_be_asked(message) => {
            return with_session_id(*reply, &asking_id());
        }
        Err(reply) => return *reply,
    };
    let (client, questions) = match session_id(&context.headers) {
        Ok(id) if id.as_str().starts_with(ASKING) => {
            let (client, questions) = RunClient::asked();
            (client, Some(questions))
        }
        _ => (RunClient::silent(), None),
    };
    let context = CallContext {
        caller: context.caller.clone(),
        upstreams: Arc::new(NestedServers(Arc::clone(&context.app))),
        client,
    };
    reply_to(id_json, call.make(context), questions).await
}

/// The client answers what a tool asked during a run.
async fn answered(context: &CodeContext, message: &Message<'_>) -> Reply {
    let place = message.id().and_then(|id| AnswerPlace::read(id.as_json()));
    let session = place.as_ref().and_then(|place| {
        let session = context
            .server
            .session_of(&context.caller.principal, place.language);
        session.ok()
    });
    let reply = place.as_ref().and_then(|place| place.answer(message));
    match (place, session, reply) {
        (Some(place), Some(session), Some(reply)) => {
            let inside = NestedServers(Arc::clone(&context.app));
            inside.send(&session, place.server.as_str(), reply).await
        }
        _ => answer::plain(ErrorKind::AnswerUnexpected, message.id()),
    }
}

/// Whether a client's `initialize` says that it can be asked.
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

/// The session id of a client that can be asked. Any worker reads that from it, and nothing is kept under it: who makes
/// one up only says of itself that it can be asked.
fn asking_id() -> String {
    format!("{ASKING}{:032x}", rand::random::<u128>())
}
