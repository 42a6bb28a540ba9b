//! The replies of a connection, as an instance over HTTP would give them.
//!
//! Invariant: a reply that refuses says so in a JSON-RPC error with the status of its kind.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};

use super::outbox::Reader;
use crate::{Body, Reply};
use mooring_protocol::ErrorBody;

/// A message was passed on that has no answer.
pub(super) fn accepted() -> Reply {
    empty(StatusCode::ACCEPTED)
}

/// A reply without a body.
pub(super) fn empty(status: StatusCode) -> Reply {
    let mut reply = Response::new(Body::whole(Bytes::new()));
    *reply.status_mut() = status;
    reply
}

/// A stream of events.
pub(super) fn events(reader: Reader) -> Reply {
    stream(Body::made(reader))
}

/// A stream of events that are all there.
pub(super) fn whole_events(events: Bytes) -> Reply {
    stream(Body::whole(events))
}

fn stream(body: Body) -> Reply {
    let mut reply = Response::new(body);
    let value = HeaderValue::from_static("text/event-stream");
    reply.headers_mut().insert(CONTENT_TYPE, value);
    reply
}

/// An error in the place of the server's answer.
pub(super) fn refused(error: &ErrorBody<'_>) -> Reply {
    refused_as(error.status(), error)
}

/// The same with another status.
pub(super) fn refused_as(status: StatusCode, error: &ErrorBody<'_>) -> Reply {
    let mut reply = Response::new(Body::whole(error.to_bytes()));
    *reply.status_mut() = status;
    let headers = reply.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if status == StatusCode::TOO_MANY_REQUESTS {
        headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    reply
}
