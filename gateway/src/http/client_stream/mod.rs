//! Serving clients whose replies and other messages all go onto a single stream.

mod answering;
mod initialize;
mod reading;

pub(super) use self::answering::{StreamContext, answer_request, listen, serve};
pub(super) use self::initialize::{initialize, initialize_params, revision_for};

use http::StatusCode;

use crate::client_stream::OpenStream;
use mooring_protocol::ErrorKind;

/// Ends the stream if the status says that its session has ended.
pub(super) fn finish_if_over(stream: &OpenStream, status: StatusCode) {
    if is_session_over(status) {
        tracing::info!(session = %stream.session.digest, "session ended; closing its stream");
        stream.finish();
    }
}

/// Whether a status says that the session has ended.
fn is_session_over(status: StatusCode) -> bool {
    status == ErrorKind::SessionNotFound.status()
}
