//! What the headers of a request say to the pipeline, which knows no headers.

use http::{HeaderMap, HeaderName, HeaderValue};
use mooring_session::names::SessionId;

use super::continuity_keys;
use mooring_code::place::ClientName;
use mooring_pipeline::{ClientTransport, ContinuityFields, MirroredFields, RequestFields};
use mooring_protocol::header::{
    MCP_METHOD, MCP_NAME, MCP_PROTOCOL_VERSION, MCP_SESSION_ID, X_MCP_SESSION_ID,
};
use mooring_protocol::{ErrorKind, Revision};
use mooring_upstream::ForwardedFields;

/// The fields in these headers.
pub(super) fn read_fields(headers: &HeaderMap) -> RequestFields {
    let revision = Revision::of_headers(headers);
    let mut forwarded = ForwardedFields::of(headers);
    if headers.contains_key(MCP_PROTOCOL_VERSION) {
        forwarded.revision = revision.as_ref().ok().copied();
    }
    let mirrored = MirroredFields {
        revision: joined(headers, &MCP_PROTOCOL_VERSION),
        method: joined(headers, &MCP_METHOD),
        name: joined(headers, &MCP_NAME),
    };
    // A request of that era is in no session and resumes nothing, whatever these headers say (MCP 2026-07-28, transports,
    // "Earlier Streamable HTTP Revisions").
    let is_modern = mirrored.names_modern_revision();
    if is_modern {
        forwarded.last_event_id = None;
    }
    RequestFields {
        session: match is_modern {
            true => Err(ErrorKind::SessionMissing),
            false => session_id(headers),
        },
        revision,
        mirrored,
        continuity: match is_modern {
            true => continuity_keys::read(headers),
            false => ContinuityFields::default(),
        },
        client_name: headers.get(ClientName::HEADER).cloned(),
        forwarded,
        transport: ClientTransport::Http(None),
        is_from_foreign_page: false,
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

/// The value of a header, joined from all its lines.
pub(super) fn joined(headers: &HeaderMap, name: &HeaderName) -> Option<HeaderValue> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?;
    let mut value = first.clone();
    for other in values {
        let both = [value.as_bytes(), other.as_bytes()].join(&b", "[..]);
        value = HeaderValue::from_bytes(&both).ok()?;
    }
    Some(value)
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

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderName, HeaderValue};

    fn read(sent: &[(HeaderName, &'static str)]) -> RequestFields {
        let sent = sent.iter();
        let sent = sent.map(|(name, value)| (name.clone(), HeaderValue::from_static(value)));
        read_fields(&HeaderMap::from_iter(sent))
    }

    #[test]
    fn a_session_has_one_id_under_its_name_or_the_alias() {
        let session = |sent: &[_]| read(sent).session.map(|id| id.as_str().to_owned());
        assert_eq!(session(&[]), Err(ErrorKind::SessionMissing));
        for name in [MCP_SESSION_ID, X_MCP_SESSION_ID] {
            assert_eq!(session(&[(name, "a1")]), Ok("a1".to_owned()));
        }
        let both = |alias| session(&[(MCP_SESSION_ID, "a1"), (X_MCP_SESSION_ID, alias)]);
        assert_eq!(both("a1"), Ok("a1".to_owned()));
        assert_eq!(both("a2"), Err(ErrorKind::InvalidRequest));
        assert_eq!(
            session(&[(MCP_SESSION_ID, "a b")]),
            Err(ErrorKind::SessionNotFound)
        );
    }

    #[test]
    fn only_a_revision_that_is_named_and_served_goes_on() {
        let fields = |named| read(&[(MCP_PROTOCOL_VERSION, named)]);
        let unnamed = read(&[]);
        assert_eq!(unnamed.revision, Ok(Revision::ASSUMED));
        assert_eq!(unnamed.forwarded.revision, None);
        let named = fields("2025-06-18");
        assert_eq!(named.revision, Ok(Revision::V2025_06_18));
        assert_eq!(named.forwarded.revision, Some(Revision::V2025_06_18));
        let unserved = fields("2026-07-28");
        assert!(unserved.revision.is_err());
        assert_eq!(unserved.forwarded.revision, None);
    }
}
