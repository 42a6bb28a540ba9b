//! Requests without a session (MCP 2026-07-28): each says itself which revision it is of and what its client can do.
//!
//! The body decides the era of a request, and its headers have to agree with it ([`header_checks`]). A request of this era
//! passes the same steps as every other, and here it takes its own route: to any instance of an upstream server
//! ([`upstream`]), or to the instance that has what the request is about ([`instance_bound`]). The store is used only where
//! something may be used once.
//!
//! Invariant: a server whose clients need sessions serves no request without one. It answers `server/discover` as a server
//! does that has never heard of this revision, so that clients begin a session.

mod header_checks;
mod instance_bound;
mod reply_changes;
mod sealed_states;
mod upstream;

use std::borrow::Cow;

use bytes::Bytes;
use http::StatusCode;

use super::directory::ServerTarget;
use super::pipeline::{Operation, serve};
use super::request::{Request, RequestFields, is_initialize};
use super::{admin, agent, answer, code};
pub use sealed_states::ClientStates;

use mooring_protocol::{
    ErrorBody, ErrorKind, Kind, Message, Method, Reply, Revision, VersionError,
};
use mooring_upstream::{Caller, ServerEra};

/// Whether a message is one of this era: its body says so, or nothing but its headers and its method do.
pub(crate) fn is_modern(fields: &RequestFields, message: &Message<'_>) -> bool {
    // It selects the other era, unless it says otherwise itself (versioning, "Backward Compatibility").
    if is_initialize(message) {
        return message.params.is_modern();
    }
    let is_discovery =
        message.kind() == Kind::Request && message.method() == Method::ServerDiscover;
    message.params.is_modern() || is_discovery || fields.mirrored.names_modern_revision()
}

/// Serves a message of this era.
pub(crate) async fn serve_sessionless(
    request: &Request,
    server: &ServerTarget,
    body: &Bytes,
    message: &Message<'_>,
) -> Reply {
    match era_of(request, server, message).await {
        Ok(ServerEra::Modern) => {}
        Ok(ServerEra::Legacy) => return begin_a_session(message),
        Err(reply) => return *reply,
    }
    match message.kind() {
        Kind::Request => {}
        // None is defined, and whoever sends one waits for nothing.
        Kind::Notification => return Reply::empty(StatusCode::ACCEPTED),
        Kind::Result | Kind::Error => {
            let detail = "a client without a session sends no responses (MCP 2026-07-28)";
            return answer::detailed(ErrorKind::InvalidRequest, None, detail);
        }
    }
    if let Err(error) = header_checks::check(&request.fields.mirrored, message) {
        return answer::error(&error.answering(message.id()));
    }
    let operation = Operation::Message {
        body,
        message,
        revision: Revision::MODERN,
    };
    serve(request, server, operation).await
}

/// Sends a request to its server, by the server's kind.
pub(crate) async fn route(
    request: &Request,
    server: &ServerTarget,
    body: &Bytes,
    message: &Message<'_>,
) -> Reply {
    match server {
        ServerTarget::Upstream(server) => upstream::post(&request.at(server), body, message).await,
        ServerTarget::Code(server) => {
            code::post(&request.at(server), message, Revision::MODERN).await
        }
        ServerTarget::Agent(server) => agent::post_sessionless(&request.at(server), message).await,
        ServerTarget::Admin(server) => {
            admin::post(&request.at(server), message, Revision::MODERN).await
        }
        ServerTarget::Group(_) => begin_a_session(message),
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
        ServerTarget::Upstream(server) => server,
        ServerTarget::Code(_) | ServerTarget::Agent(_) | ServerTarget::Admin(_) => {
            return Ok(ServerEra::Modern);
        }
        ServerTarget::Group(_) => return Ok(ServerEra::Legacy),
    };
    let caller = caller_of(request);
    match request.core.pool.era_of(server, &caller).await {
        // What it answers to the request itself says why it gave no evidence.
        Ok(era) => Ok(era.unwrap_or(ServerEra::Modern)),
        Err(cause) => Err(Box::new(answer::exchange(&cause, message.id()))),
    }
}

/// The answer of a server that serves sessions alone. To `server/discover` it is no error of this revision: that would
/// identify the gateway as a server of it (MCP 2026-07-28, versioning, "Backward Compatibility").
fn begin_a_session(message: &Message<'_>) -> Reply {
    if message.method() == Method::ServerDiscover {
        return answer::plain(ErrorKind::MethodNotFound, message.id());
    }
    let named = message.params.modern_version();
    let named = named.unwrap_or(Cow::Borrowed(Revision::MODERN.as_str()));
    let error = VersionError::Unsupported(named.into_owned());
    answer::error(&ErrorBody::from(&error).answering(message.id()))
}

/// The caller of a request that belongs to no session.
fn caller_of(request: &Request) -> Caller<'_> {
    Caller {
        teams: &request.identity.teams,
        token: request.identity.token.as_ref(),
        memory: Some(request.usage.replies()),
        ..Caller::of(&request.identity.principal)
    }
}
