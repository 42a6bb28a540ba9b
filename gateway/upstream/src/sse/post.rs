//! One message on its way to the server.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::Full;

use crate::{Client, Instance, SendError};
use mooring_protocol::ReplyBody;

/// The body of the answer to a POST says nothing. It is read up to this, in bytes, so that its connection can be used
/// again; a longer one costs the connection.
const ACCEPTED_BYTES_MAX: usize = 16 * 1024;
/// ... and this long.
const ACCEPTED_WITHIN: Duration = Duration::from_secs(1);

/// Where messages go, and with which headers.
#[derive(Clone, Debug)]
pub(super) struct Poster {
    pub(super) client: Client,
    pub(super) instance: Arc<Instance>,
    pub(super) endpoint: Uri,
    pub(super) headers: HeaderMap,
}

/// What became of a message.
#[derive(Debug)]
pub(super) enum PostOutcome {
    /// The server took it.
    Taken,
    /// The server refused it, and it did not run.
    Refused(StatusCode),
    /// The server does not know the session any more. It did not run.
    SessionGone(StatusCode),
    /// Nobody listens at the server's address any more. It was not delivered.
    ServerGone,
    /// No connection could be made. It was not delivered.
    Undelivered(SendError),
    /// The connection broke before the server answered: it may have been delivered.
    Unknown(SendError),
}

impl Poster {
    /// POSTs one message. There is no time limit: some servers answer only when the message has been worked on.
    pub(super) async fn post(&self, message: Bytes) -> PostOutcome {
        let mut request = Request::new(Full::new(message));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.endpoint.clone();
        *request.headers_mut() = self.headers.clone();
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        // The answer has no content that would matter.
        headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
        let reply = match self.client.send(&self.instance, request).await {
            Ok(reply) => reply,
            Err(SendError::Refused) => return PostOutcome::ServerGone,
            Err(error) if error.is_undelivered() => return PostOutcome::Undelivered(error),
            Err(error) => return PostOutcome::Unknown(error),
        };
        let status = reply.status;
        read_away(reply.body).await;
        match status {
            status if status.is_success() => PostOutcome::Taken,
            StatusCode::NOT_FOUND | StatusCode::GONE => PostOutcome::SessionGone(status),
            status => PostOutcome::Refused(status),
        }
    }
}

async fn read_away(body: ReplyBody) {
    let reading = body.read_text(ACCEPTED_BYTES_MAX);
    // What fails here costs the connection, and nothing else.
    let _ = tokio::time::timeout(ACCEPTED_WITHIN, reading).await;
}
