//! The replies of a connection, as an instance over HTTP would send them.
//!
//! Invariant: a refusal is a JSON-RPC error with the HTTP status of its kind.

use futures_util::stream;
use http::{HeaderValue, StatusCode};

use mooring_protocol::{ErrorBody, Event, Reply};

/// 202, for a message without an answer.
pub(super) const fn accepted() -> Reply {
    Reply::empty(StatusCode::ACCEPTED)
}

/// A stream with a single event.
pub(super) fn one_event(event: Event) -> Reply {
    Reply::events(stream::iter([Ok(event)]))
}

/// An error response.
pub(super) fn refused(error: &ErrorBody<'_>) -> Reply {
    refused_as(error.status(), error)
}

/// An error response with another status.
pub(super) fn refused_as(status: StatusCode, error: &ErrorBody<'_>) -> Reply {
    let mut reply = Reply::json(status, error.to_bytes());
    if status == StatusCode::TOO_MANY_REQUESTS {
        reply.retry_after = Some(HeaderValue::from_static("1"));
    }
    reply
}
