//! The entry of every request of an admitted client, and its route by its era and the kind of its server.

use bytes::Bytes;

use super::directory::ServerTarget;
use super::hooked_call::answered;
use super::order::serve_in_order;
use super::request::{Request, RequestServer as _};
use super::visible_tools::VisibleTools;
use super::{admin, agent, answer, code, group, modern, stateful, upstream_server};
use mooring_protocol::{EnvelopeError, ErrorBody, Message, Reply, Revision};
use mooring_traces::in_scope;

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
    let message = match parsed {
        Ok(message) => message,
        Err(cause) => return answer::error(&ErrorBody::from(&cause)),
    };
    if modern::is_modern(&request.fields, &message) {
        return Box::pin(modern::serve_sessionless(request, server, body, &message)).await;
    }
    let revision = match request.fields.revision_of(&message) {
        Ok(revision) => revision,
        Err(cause) => return answer::error(&ErrorBody::from(&cause).answering(message.id())),
    };
    let operation = Operation::Message {
        body,
        message: &message,
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
        return Box::pin(modern::route(request, server, body, message)).await;
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
