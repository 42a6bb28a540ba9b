//! Clients for whom everything goes onto one stream, whatever that is: how their messages are served.

mod answering;
mod initialize;
mod reading;

pub(super) use self::answering::{StreamContext, answer_request, listen, serve};
pub(super) use self::initialize::{initialize, initialize_params, revision_for};

use http::StatusCode;

use crate::client_stream::OpenStream;
use mooring_protocol::ErrorKind;

/// Ends the stream of a session that is over.
pub(super) fn finish_if_over(stream: &OpenStream, status: StatusCode) {
    if is_session_over(status) {
        tracing::info!(session = %stream.session.digest, "a client's session is over; its stream ends");
        stream.finish();
    }
}

/// Whether a status says that the session is over.
fn is_session_over(status: StatusCode) -> bool {
    status == ErrorKind::SessionNotFound.status()
}
