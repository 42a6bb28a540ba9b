//! Reads and answers one request of a peer.
//!
//! Invariant: requests come only from authenticated connections (`listener`), and each is read within limits of time
//! and size before it is served.

use std::error::Error as StdError;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONNECTION;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt, Either, Full, LengthLimitError, Limited};
use hyper::body::Incoming;

use super::figures;
use super::forward::{self, Forward, MalformedHead, Operation, Verdict};
use super::refusal::PeerRefusal;

/// Timeout for receiving a whole request.
const ARRIVAL_LIMIT: Duration = Duration::from_secs(30);

/// Serves requests of peers.
pub trait PeerService: Send + Sync + 'static {
    /// The body of a reply.
    type Body: Body<Data = Bytes, Error: Into<Box<dyn StdError + Send + Sync>>>
        + Send
        + Unpin
        + 'static;

    /// Serves a request, or returns why nothing was done. The future is dropped if the peer disconnects before the
    /// reply, and the body if it disconnects later; the implementation decides whether that cancels anything.
    fn serve(
        &self,
        forward: Forward,
    ) -> impl Future<Output = Result<Response<Self::Body>, Verdict>> + Send;

    /// Answers a question for figures of this gateway; none if it does not know the question.
    fn figures(&self, question: &[u8]) -> Option<Bytes>;
}

/// The body of every reply: none, figures, or the connection's as it arrives.
pub(super) type PeerReplyBody<B> = Either<Full<Bytes>, B>;

/// State shared by the requests of all connections.
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
        let outcome = match self.serve(request).await {
            Ok(outcome) => outcome,
            Err(refusal) => {
                refusal.record(address);
                return refused();
            }
        };
        let (mut reply, outcome) = match outcome {
            Ok(reply) => (reply, Ok(())),
            Err(verdict) => (Response::new(Either::Left(Full::default())), Err(verdict)),
        };
        forward::set_outcome(reply.headers_mut(), outcome);
        reply
    }

    async fn serve(
        &self,
        request: Request<Incoming>,
    ) -> Result<Result<Response<PeerReplyBody<S::Body>>, Verdict>, PeerRefusal> {
        if request.uri().path() == figures::PATH {
            let question = read_body(request.into_body(), figures::QUESTION_BYTES_MAX).await?;
            let answer = self.service.figures(&question);
            return Ok(match answer {
                Some(answer) => Ok(Response::new(Either::Left(Full::new(answer)))),
                None => Err(Verdict::Unsupported),
            });
        }
        let Ok(operation) = Operation::of(request.uri().path()) else {
            return Ok(Err(Verdict::Unsupported));
        };
        let (head, body) = request.into_parts();
        let mut forward =
            Forward::from_head(operation, head).map_err(|MalformedHead| PeerRefusal::Malformed)?;
        forward.body = read_body(body, self.body_bytes_max).await?;
        let reply = self.service.serve(forward).await;
        Ok(reply.map(|reply| reply.map(Either::Right)))
    }
}

/// Reads a body of at most `body_bytes_max` bytes.
async fn read_body(body: Incoming, body_bytes_max: usize) -> Result<Bytes, PeerRefusal> {
    if usize::try_from(body.size_hint().lower()).is_ok_and(|bytes| bytes > body_bytes_max) {
        return Err(PeerRefusal::TooLarge);
    }
    let body = Limited::new(body, body_bytes_max).collect();
    let body = tokio::time::timeout(ARRIVAL_LIMIT, body)
        .await
        .map_err(|_| PeerRefusal::TimedOut(ARRIVAL_LIMIT))?;
    match body {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(PeerRefusal::TooLarge),
        Err(_) => Err(PeerRefusal::Truncated),
    }
}

/// The reply to a refused request. It closes the connection, as the rest of the request may be unread.
fn refused<B: Body<Data = Bytes>>() -> Response<PeerReplyBody<B>> {
    let mut reply = Response::new(Either::Left(Full::default()));
    *reply.status_mut() = StatusCode::BAD_REQUEST;
    let close = HeaderValue::from_static("close");
    reply.headers_mut().insert(CONNECTION, close);
    reply
}
