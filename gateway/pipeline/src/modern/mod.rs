//! Requests without a session (MCP 2026-07-28): each says itself which revision it is of and what its client can do.
//!
//! The body decides the era of a request, and its headers have to agree with it ([`header_checks`]). A request of this era
//! passes the same steps as every other, and takes a route of its own at an upstream server: to any instance
//! ([`upstream`]), to the instance that has what the request is about ([`instance_bound`]), or where the server keeps sessions
//! for such requests, into the session that their key names ([`continuity`]). The store is used only there, and where something
//! may be used once.
//!
//! Invariant: a server whose clients need sessions serves no request without one. It answers `server/discover` as a server
//! does that has never heard of this revision, so that clients begin a session.

mod continuity;
mod header_checks;
mod instance_bound;
mod reply_changes;
mod upstream;

use std::borrow::Cow;

use super::answer;
use super::request::{Request, RequestFields, is_initialize};
pub(crate) use continuity::{is_kept, post as post_in_session};
pub(crate) use header_checks::check as check_headers;
use mooring_protocol::{
    ErrorBody, ErrorKind, Kind, Message, Method, Reply, Revision, VersionError,
};
use mooring_upstream::Caller;
pub(crate) use upstream::post;

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

/// The answer of a server that serves sessions alone. To `server/discover` it is no error of this revision: that would
/// identify the gateway as a server of it (MCP 2026-07-28, versioning, "Backward Compatibility").
pub(crate) fn begin_a_session(message: &Message<'_>) -> Reply {
    if message.method() == Method::ServerDiscover {
        return answer::plain(ErrorKind::MethodNotFound, message.id());
    }
    let named = match message.params.is_modern() {
        true => message.params.modern_version().unwrap_or_default(),
        false => Cow::Borrowed(Revision::MODERN.as_str()),
    };
    let error = VersionError::Unsupported(named.into_owned());
    answer::error(&ErrorBody::from(&error).answering(message.id()))
}

/// The caller of a request that belongs to no session.
pub(crate) fn caller_of(request: &Request) -> Caller<'_> {
    Caller {
        teams: &request.identity.teams,
        token: request.identity.token.as_ref(),
        memory: Some(request.usage.replies()),
        ..Caller::of(&request.identity.principal)
    }
}
