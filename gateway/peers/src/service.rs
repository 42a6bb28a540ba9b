//! One request of another worker: who is let in, and how it is answered.
//!
//! Invariant: whoever is not let in gets the same answer whatever the reason, and the answer says nothing.

use std::convert::Infallible;
use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use mooring_session::names::WorkerId;

use super::framed::Framed;
use super::intake::{self, IntakeError};
use super::metrics;
use super::{CONTENT, PATH};
use crate::fleet::{Addressed, Admitted, Forward, FrameEncoder, Gate, ReplyHead, Verdict};

/// What a worker does for the others.
pub trait PeerService: Send + Sync + 'static {
    /// The body of an answer.
    type Body: Body<Data = Bytes, Error: Display> + Send + Unpin + 'static;

    /// Does what the worker `from` asks, or says why nothing was done. The future is dropped where the other worker goes
    /// away before it has an answer, and the body where it does so later; whether that ends anything is decided here.
    fn serve(
        &self,
        from: WorkerId,
        forward: Forward,
    ) -> impl Future<Output = Result<Response<Self::Body>, Verdict>> + Send;
}

/// The body of every answer: a few bytes, or frames as they arrive.
pub(super) type Answer<B> = Either<Full<Bytes>, Framed<B>>;

/// What the requests of all connections share.
pub(super) struct Door<S> {
    pub(super) gate: Arc<Gate>,
    pub(super) service: Arc<S>,
    pub(super) body_bytes_max: u64,
}

impl<S: PeerService> Door<S> {
    /// Answers one request of the connection from `address`.
    pub(super) async fn answer(
        &self,
        request: Request<Incoming>,
        address: SocketAddr,
    ) -> Result<Response<Answer<S::Body>>, Infallible> {
        if request.method() != Method::POST || request.uri().path() != PATH {
            return Ok(bare(StatusCode::NOT_FOUND));
        }
        let body = request.into_body();
        Ok(
            match intake::take(body, &self.gate, self.body_bytes_max).await {
                Ok(admitted) => self.serve(admitted).await,
                Err(error) => refuse(&error, address),
            },
        )
    }

    async fn serve(&self, admitted: Admitted) -> Response<Answer<S::Body>> {
        let Admitted {
            from,
            addressed,
            forward,
            exchange,
            ..
        } = admitted;
        let outcome = match addressed {
            Addressed::Here => self.service.serve(from, forward).await,
            Addressed::OtherRun => Err(Verdict::NotHere),
        };
        let mut encoder = FrameEncoder::new(exchange);
        let (outcome, body) = match outcome {
            Ok(reply) => {
                let (parts, body) = reply.into_parts();
                (Ok(Response::from_parts(parts, ())), Some(body))
            }
            Err(verdict) => (Err(verdict), None),
        };
        let head = ReplyHead {
            from: self.gate.me().clone(),
            outcome,
        };
        let head = match encoder.head(&head) {
            Ok(head) => head,
            Err(error) => {
                tracing::error!(%error, "a reply to another worker is dropped");
                return bare(StatusCode::INTERNAL_SERVER_ERROR);
            }
        };
        let mut answer = Response::new(match body {
            Some(body) => Either::Right(Framed::new(head, encoder, body)),
            None => Either::Left(Full::new(head)),
        });
        answer.headers_mut().insert(CONTENT_TYPE, CONTENT);
        answer
    }
}

/// Refuses a request, and closes the connection: nothing else that comes over it can be expected to be better.
fn refuse<B>(error: &IntakeError, address: SocketAddr) -> Response<Answer<B>>
where
    B: Body<Data = Bytes, Error: Display> + Unpin,
{
    let reason = error.reason();
    metrics::peer_refused(reason);
    tracing::warn!(%address, reason, %error, "a request between workers is refused");
    let mut answer = bare(StatusCode::UNAUTHORIZED);
    let close = HeaderValue::from_static("close");
    answer.headers_mut().insert(CONNECTION, close);
    answer
}

fn bare<B>(status: StatusCode) -> Response<Answer<B>>
where
    B: Body<Data = Bytes, Error: Display> + Unpin,
{
    let mut answer = Response::new(Either::Left(Full::default()));
    *answer.status_mut() = status;
    answer
}
