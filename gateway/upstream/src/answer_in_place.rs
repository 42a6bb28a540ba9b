//! Replaces an unreadable response of a server by an error, so that its call ends and the session continues.
//!
//! Invariant: if the call cannot be determined, it is left open; no call gets the error of another one.

use bytes::Bytes;

use mooring_protocol::{CutMessage, ErrorKind, call, response_id};

/// An error in place of the response that begins and ends with these bytes; none if its call cannot be determined.
pub(crate) fn error_in_place(beginning: &[u8], end: &[u8], what: &str) -> Option<Bytes> {
    let id = response_id(beginning, end)?;
    let kind = ErrorKind::UpstreamInvalid;
    let message = format!("the server sent an invalid reply: {what}; the call has run");
    Some(error_response(id, kind.code(), &message))
}

/// The error response to the request with this id.
pub(crate) fn error_response(id_json: &str, code: i32, message: &str) -> Bytes {
    let error = serde_json::json!({ "code": code, "message": message });
    call::error(id_json, &error.to_string()).into()
}

/// The same for a message that exceeds a limit of bytes.
pub(crate) fn error_in_place_of_long(message: &CutMessage, bytes_max: usize) -> Option<Bytes> {
    let what = format!("it is {} bytes long (limit {bytes_max})", message.bytes);
    error_in_place(&message.beginning, &message.end, &what)
}
