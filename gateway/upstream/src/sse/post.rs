//! POSTs one message to the server.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri};

use crate::{Client, Instance, SendError};
use mooring_protocol::ReplyBody;

/// The body of the response has no meaning. It is read up to this many bytes so that its connection can be reused; if
/// it is longer, the connection is closed.
const ACCEPTED_BYTES_MAX: usize = 16 * 1024;
/// Time limit of that.
const ACCEPTED_WITHIN: Duration = Duration::from_secs(1);

/// The URI and the headers of POSTs.
#[derive(Clone, Debug)]
pub(super) struct Poster {
    pub(super) client: Client,
    pub(super) instance: Arc<Instance>,
    pub(super) endpoint: Uri,
    pub(super) headers: HeaderMap,
}

/// The outcome of a POST.
#[derive(Debug)]
pub(super) enum PostOutcome {
    /// The server accepted the message.
    Accepted,
    /// The server refused the message, which did not run.
    Refused(StatusCode),
    /// The server does not know the session. The message did not run.
    SessionGone(StatusCode),
    /// The server refuses connections. The message was not delivered.
    ServerGone,
    /// No connection could be made. The message was not delivered.
    Undelivered(SendError),
    /// The connection broke before the response: the message may have been delivered.
    Unknown(SendError),
}

impl Poster {
    /// POSTs one message. There is no time limit: some servers respond only after processing the message.
    pub(super) async fn post(&self, message: Bytes) -> PostOutcome {
        let mut request = Request::new(message);
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.endpoint.clone();
        *request.headers_mut() = self.headers.clone();
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        // The response has no relevant content.
        headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
        let reply = match self.client.send_request(&self.instance, &request).await {
            Ok(reply) => reply,
            Err(SendError::Refused) => return PostOutcome::ServerGone,
            Err(error) if error.is_undelivered() => return PostOutcome::Undelivered(error),
            Err(error) => return PostOutcome::Unknown(error),
        };
        let status = reply.status;
        drain_body(reply.body).await;
        match status {
            status if status.is_success() => PostOutcome::Accepted,
            StatusCode::NOT_FOUND | StatusCode::GONE => PostOutcome::SessionGone(status),
            status => PostOutcome::Refused(status),
        }
    }
}

async fn drain_body(body: ReplyBody) {
    let reading = body.read_text(ACCEPTED_BYTES_MAX);
    // A failure only costs the connection.
    let _ = tokio::time::timeout(ACCEPTED_WITHIN, reading).await;
}
