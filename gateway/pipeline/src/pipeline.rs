//! The entry of every request of an admitted client, and its route by its era and the kind of its server.

use bytes::Bytes;
use futures_util::FutureExt as _;
use http::StatusCode;

use super::directory::ServerTarget;
use super::hooked_call::answered;
use super::order::serve_in_order;
use super::request::{Request, RequestServer as _};
use super::user_secret::refuse_without_secret;
use super::visible_tools::VisibleTools;
use super::{admin, agent, answer, code, group, modern, stateful, upstream_server};
use mooring_protocol::{EnvelopeError, ErrorBody, ErrorKind, Kind, Message, Reply, Revision};
use mooring_traces::in_scope;
use mooring_upstream::ServerEra;

/// What a request asks for.
#[derive(Debug)]
pub enum Operation<'a> {
    /// To serve a message.
    Message {
        /// The text of the message.
        body: &'a Bytes,
        /// The message, parsed from its text.
        message: &'a Message<'a>,
        /// Its revision.
        revision: Revision,
    },
    /// The stream of messages that answer no request, or the events after one.
    Stream,
    /// To end the session, even if the client does not wait for the reply.
    Deletion,
}

/// Serves one request for this server.
pub async fn serve(request: &Request, server: &ServerTarget, operation: Operation<'_>) -> Reply {
    match operation {
        Operation::Message {
            body,
            message,
            revision,
        } => {
            let scope = request.entry.as_ref().and_then(|entry| {
                entry.note_message(server.id(), message);
                entry.begin_trace(request, message, revision)
            });
            let route = async |body: &Bytes, message: &Message<'_>| {
                route(request, server, body, message, revision).await
            };
            let at_server = request.at(server);
            in_scope(scope, serve_in_order(&at_server, body, message, route)).await
        }
        Operation::Stream => Box::pin(serve_stream(request, server)).await,
        Operation::Deletion => Box::pin(end_session(request, server)).await,
    }
}

/// Serves a message that was posted by itself, if its revision is served.
pub async fn serve_posted(
    request: &Request,
    server: &ServerTarget,
    body: &Bytes,
    parsed: Result<Message<'_>, EnvelopeError>,
) -> Reply {
    // Borrowed: the future of every call would otherwise have room for it twice.
    let message = match &parsed {
        Ok(message) => message,
        Err(cause) => return answer::error(&ErrorBody::from(cause)),
    };
    if modern::is_modern(&request.fields, message) {
        return Box::pin(serve_sessionless(request, server, body, message)).await;
    }
    let revision = match request.fields.revision_of(message) {
        Ok(revision) => revision,
        Err(cause) => return answer::error(&ErrorBody::from(&cause).answering(message.id())),
    };
    let operation = Operation::Message {
        body,
        message,
        revision,
    };
    serve(request, server, operation).await
}

/// Sends a message to its server. The futures of rare kinds are boxed: a call's own would otherwise be as large.
async fn route(
    request: &Request,
    server: &ServerTarget,
    body: &Bytes,
    message: &Message<'_>,
    revision: Revision,
) -> Reply {
    if revision.is_modern() {
        return Box::pin(route_sessionless(request, server, body, message)).await;
    }
    match server {
        ServerTarget::Upstream(server) => {
            upstream_server::post(&request.at(server), body, message, revision).await
        }
        ServerTarget::Code(server) => {
            Box::pin(code::post(&request.at(server), message, revision)).await
        }
        ServerTarget::Agent(server) => {
            Box::pin(agent::post(&request.at(server), message, revision)).await
        }
        ServerTarget::Admin(server) => {
            Box::pin(admin::post(&request.at(server), message, revision)).await
        }
        ServerTarget::Group(group) => {
            Box::pin(group::post(&request.at(group), body, message, revision)).await
        }
    }
}

/// Serves a message without a session, if its server serves such messages.
async fn serve_sessionless(
    request: &Request,
    server: &ServerTarget,
    body: &Bytes,
    message: &Message<'_>,
) -> Reply {
    match era_of(request, server, message).await {
        Ok(ServerEra::Modern) => {}
        Ok(ServerEra::Legacy) => return modern::begin_a_session(message),
        Err(reply) => return *reply,
    }
    match message.kind() {
        Kind::Request => {}
        // This revision defines none, and its sender waits for no reply.
        Kind::Notification => return Reply::empty(StatusCode::ACCEPTED),
        Kind::Result | Kind::Error => {
            let detail = "a client without a session sends no responses (MCP 2026-07-28)";
            return answer::detailed(ErrorKind::InvalidRequest, None, detail);
        }
    }
    if let Err(error) = modern::check_headers(&request.fields.mirrored, message) {
        return answer::error(&error.answering(message.id()));
    }
    let operation = Operation::Message {
        body,
        message,
        revision: Revision::MODERN,
    };
    serve(request, server, operation).await
}

/// Sends a request without a session to its server, by the server's kind.
async fn route_sessionless(
    request: &Request,
    server: &ServerTarget,
    body: &Bytes,
    message: &Message<'_>,
) -> Reply {
    match server {
        ServerTarget::Upstream(server) if modern::is_kept(server) => {
            // Its type is erased: the compiler has a limit for the depth of futures.
            let at_server = request.at(server);
            let posted = modern::post_in_session(&at_server, body, message);
            posted.boxed().await
        }
        ServerTarget::Upstream(server) => modern::post(&request.at(server), body, message).await,
        ServerTarget::Code(server) => {
            code::post(&request.at(server), message, Revision::MODERN).await
        }
        ServerTarget::Agent(server) => agent::post_sessionless(&request.at(server), message).await,
        ServerTarget::Admin(server) => {
            admin::post(&request.at(server), message, Revision::MODERN).await
        }
        ServerTarget::Group(_) => modern::begin_a_session(message),
    }
}

/// The era in which the server serves this request.
///
/// # Errors
/// The reply: it could not be found out.
async fn era_of(
    request: &Request,
    server: &ServerTarget,
    message: &Message<'_>,
) -> Result<ServerEra, Box<Reply>> {
    let server = match server {
        ServerTarget::Upstream(server) if modern::is_kept(server) => return Ok(ServerEra::Modern),
        ServerTarget::Upstream(server) => server,
        ServerTarget::Code(_) | ServerTarget::Agent(_) | ServerTarget::Admin(_) => {
            return Ok(ServerEra::Modern);
        }
        ServerTarget::Group(_) => return Ok(ServerEra::Legacy),
    };
    let caller = modern::caller_of(request);
    match request.core.pool.era_of(server, &caller).await {
        // What it answers to the request itself says why it gave no evidence.
        Ok(era) => Ok(era.unwrap_or(ServerEra::Modern)),
        // It could not be asked, perhaps because the user has no secret for it yet.
        Err(cause) => {
            let refusal = refuse_without_secret(&request.at(server), message).await;
            let refusal = refusal.unwrap_or_else(|| answer::exchange(&cause, message.id()));
            Err(Box::new(refusal))
        }
    }
}

async fn serve_stream(request: &Request, server: &ServerTarget) -> Reply {
    let at_server = request.at(server);
    // A client may resume the events of a list.
    let filter = VisibleTools::of(&at_server).list_filter();
    let hooks = &request.core.hooks;
    // Answers to calls can be among the events too.
    let calls = match hooks.is_empty() {
        true => None,
        false => hooks.of_unknown_calls(at_server.call_route(), &server.members()),
    };
    let mut reply = open_stream(request, server).await;
    if let Some(filter) = filter {
        reply = filter.apply(reply).await;
    }
    match calls {
        Some(calls) => answered(calls, reply, request.core.relay.message_bytes_max).await,
        None => reply,
    }
}

async fn open_stream(request: &Request, server: &ServerTarget) -> Reply {
    match server {
        ServerTarget::Upstream(server) => upstream_server::get(&request.at(server)).await,
        ServerTarget::Code(_) | ServerTarget::Agent(_) | ServerTarget::Admin(_) => {
            answer::only_post()
        }
        ServerTarget::Group(group) => group::get(&request.at(group)).await,
    }
}

async fn end_session(request: &Request, server: &ServerTarget) -> Reply {
    match server {
        ServerTarget::Code(_) | ServerTarget::Agent(_) | ServerTarget::Admin(_) => {
            answer::only_post()
        }
        ServerTarget::Upstream(server) => upstream_server::end_session(&request.at(server)).await,
        ServerTarget::Group(_) => stateful::end_session(request).await,
    }
}
