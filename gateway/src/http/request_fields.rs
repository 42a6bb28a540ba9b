//! What the headers of a request say to the pipeline, which knows no headers.

use http::HeaderMap;
use mooring_session::names::SessionId;

use mooring_code::place::ClientName;
use mooring_pipeline::RequestFields;
use mooring_protocol::header::{MCP_PROTOCOL_VERSION, MCP_SESSION_ID, X_MCP_SESSION_ID};
use mooring_protocol::{ErrorKind, Revision};
use mooring_upstream::ForwardedFields;

/// The fields in these headers.
pub(super) fn read_fields(headers: &HeaderMap) -> RequestFields {
    let revision = Revision::of_headers(headers);
    let mut forwarded = ForwardedFields::of(headers);
    if headers.contains_key(MCP_PROTOCOL_VERSION) {
        forwarded.revision = revision.as_ref().ok().copied();
    }
    RequestFields {
        session: session_id(headers),
        revision,
        client_name: headers.get(ClientName::HEADER).cloned(),
        forwarded,
    }
}

/// The same of a message for a stream, whose session and events its headers do not name.
pub(super) fn read_fields_for_stream(headers: &HeaderMap) -> RequestFields {
    let mut fields = RequestFields {
        session: Err(ErrorKind::SessionMissing),
        client_name: None,
        ..read_fields(headers)
    };
    fields.forwarded.last_event_id = None;
    fields
}

/// The session id, under its own name or the alias.
fn session_id(headers: &HeaderMap) -> Result<SessionId, ErrorKind> {
    let mut values = headers
        .get_all(MCP_SESSION_ID)
        .iter()
        .chain(headers.get_all(X_MCP_SESSION_ID));
    let value = values.next().ok_or(ErrorKind::SessionMissing)?;
    if values.any(|other| other != value) {
        return Err(ErrorKind::InvalidRequest);
    }
    // A value that cannot be a session id belongs to no session.
    SessionId::parse(value.as_bytes()).map_err(|_| ErrorKind::SessionNotFound)
}
