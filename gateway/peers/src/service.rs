//! One request of a peer: how it is read and answered.
//!
//! Invariant: only requests over connections of the fleet come here (`listener`), and each is read within limits of time
//! and size before anything is done.

use std::error::Error as StdError;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONNECTION;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt, Either, Empty, LengthLimitError, Limited};
use hyper::body::Incoming;

use super::forward::{self, Forward, MalformedHead, Operation, UnknownOperation, Verdict};
use super::refusal::PeerRefusal;

/// Longest time that a request may take to arrive whole.
const ARRIVAL_LIMIT: Duration = Duration::from_secs(30);

/// What a gateway does for its peers.
pub trait PeerService: Send + Sync + 'static {
    /// The body of a reply.
    type Body: Body<Data = Bytes, Error: Into<Box<dyn StdError + Send + Sync>>>
        + Send
        + Unpin
        + 'static;

    /// Does what a peer asks, or says why nothing was done. The future is dropped where the peer goes away before it has
    /// a reply, and the body where it does so later; whether that ends anything is decided here.
    fn serve(
        &self,
        forward: Forward,
    ) -> impl Future<Output = Result<Response<Self::Body>, Verdict>> + Send;
}

/// The body of every reply: none, or the connection's as it arrives.
pub(super) type PeerReplyBody<B> = Either<Empty<Bytes>, B>;

/// What the requests of all connections share.
pub(super) struct RequestHandler<S> {
    pub(super) service: Arc<S>,
    pub(super) body_bytes_max: usize,
}

impl<S: PeerService> RequestHandler<S> {
    /// Answers one request of the connection from `address`.
    pub(super) async fn answer(
        &self,
        request: Request<Incoming>,
        address: SocketAddr,
    ) -> Response<PeerReplyBody<S::Body>> {
        let outcome = match Operation::of(request.uri().path()) {
            Err(UnknownOperation) => Err(Verdict::Unsupported),
            Ok(operation) => match read(operation, request, self.body_bytes_max).await {
                Ok(forward) => self.service.serve(forward).await,
                Err(refusal) => {
                    refusal.record(address);
                    return refused();
                }
            },
        };
        let (mut reply, outcome) = match outcome {
            Ok(reply) => (reply.map(Either::Right), Ok(())),
            Err(verdict) => (Response::new(Either::Left(Empty::new())), Err(verdict)),
        };
        forward::set_outcome(reply.headers_mut(), outcome);
        reply
    }
}

/// Reads a request whole, with a message of at most `body_bytes_max` bytes.
async fn read(
    operation: Operation,
    request: Request<Incoming>,
    body_bytes_max: usize,
) -> Result<Forward, PeerRefusal> {
    let (head, body) = request.into_parts();
    let mut forward =
        Forward::from_head(operation, head).map_err(|MalformedHead| PeerRefusal::Malformed)?;
    if usize::try_from(body.size_hint().lower()).is_ok_and(|bytes| bytes > body_bytes_max) {
        return Err(PeerRefusal::TooLarge);
    }
    let body = Limited::new(body, body_bytes_max).collect();
    let body = tokio::time::timeout(ARRIVAL_LIMIT, body)
        .await
        .map_err(|_| PeerRefusal::TimedOut(ARRIVAL_LIMIT))?;
    forward.body = match body {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => return Err(PeerRefusal::TooLarge),
        Err(_) => return Err(PeerRefusal::Truncated),
    };
    Ok(forward)
}

/// The answer to what is not served; the connection is closed, as the rest of the request may be unread.
fn refused<B: Body<Data = Bytes>>() -> Response<PeerReplyBody<B>> {
    let mut reply = Response::new(Either::Left(Empty::new()));
    *reply.status_mut() = StatusCode::BAD_REQUEST;
    let close = HeaderValue::from_static("close");
    reply.headers_mut().insert(CONNECTION, close);
    reply
}
