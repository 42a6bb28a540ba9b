//! Asking another worker, over connections that are kept.
//!
//! Invariant: an error says whether anything can have been delivered, and only what the other worker signed can say that
//! nothing was. Nothing is sent to an address that the other worker did not sign.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::buf::Chain;
use bytes::{Buf, Bytes};
use http::header::CONTENT_TYPE;
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::Full;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{self, Client as Pool};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use mooring_session::names::WorkerId;

use super::body::{PeerBody, PeerBodyError};
use super::metrics::{self, Forwarded};
use super::{CONTENT, PATH};
use crate::fleet::{
    Forward, FrameDecoder, Gate, ReplyHead, SealError, Sealed, UnverifiedAddress, Verdict,
};
use mooring_upstream::is_refused;

/// Longest time to connect to another worker: it is near, or it is gone.
const CONNECT_LIMIT: Duration = Duration::from_secs(1);
/// How long an idle connection is kept.
pub(super) const IDLE_CONNECTION: Duration = Duration::from_secs(60);
/// Most idle connections kept to one worker.
const IDLE_CONNECTIONS_PER_WORKER_MAX: usize = 512;
/// How long a connection may be silent before TCP asks whether the other side still lives, and between two such
/// questions: replies have no time limit.
pub(super) const KEEPALIVE: Duration = Duration::from_secs(15);
/// After this many unanswered questions the connection is broken.
pub(super) const KEEPALIVE_RETRIES: u32 = 4;

/// Envelope and message, written without putting them together first.
type Asked = Full<Chain<Bytes, Bytes>>;

/// Talks to the other workers. Cheap to clone.
#[derive(Clone)]
pub struct PeerClient {
    gate: Arc<Gate>,
    connections: Pool<HttpConnector, Asked>,
}

/// Why another worker's answer is not believed.
#[derive(Debug, thiserror::Error)]
pub enum Forgery {
    /// It is not the status of a signed reply. Keys or clocks that differ make the other worker answer 401.
    #[error("it has status {0} and no signature; do keys and clocks agree?")]
    Unsigned(StatusCode),
    /// It does not begin with an authentic head.
    #[error(transparent)]
    Head(PeerBodyError),
    /// It is signed by a worker that was not asked.
    #[error("it comes from another worker")]
    OtherWorker,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// The request cannot be put into an envelope. Nothing was sent.
    #[error(transparent)]
    Unsealable(#[from] SealError),
    /// The announced address is not known to be the worker's. Nothing was sent.
    #[error(transparent)]
    Unverified(#[from] UnverifiedAddress),
    /// The worker's address is none. Nothing was sent.
    #[error("the worker's address cannot be used")]
    Address(#[source] http::uri::InvalidUri),
    /// The address refuses connections: nobody listens there. Nothing was delivered.
    #[error("the worker refuses connections")]
    Refused,
    /// No connection was made for another reason. Nothing was delivered.
    #[error("cannot connect to the worker")]
    Unreachable(#[source] legacy::Error),
    /// The connection broke after it was made. The request may have been delivered.
    #[error("the connection to the worker broke before it answered")]
    Broken(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// No answer began within the limit. The request may have been delivered.
    #[error("the worker did not answer within {} ms", .0.as_millis())]
    TimedOut(Duration),
    /// What came is not the worker's answer to this request, which may have been delivered.
    #[error("the worker's answer is not authentic: {0}")]
    Forged(Forgery),
    /// The worker did not do it. Nothing was delivered.
    #[error(transparent)]
    Verdict(Verdict),
}

impl PeerError {
    /// Whether it is certain that the server received nothing.
    #[must_use]
    pub const fn is_undelivered(&self) -> bool {
        match self {
            Self::Unsealable(_)
            | Self::Unverified(_)
            | Self::Address(_)
            | Self::Refused
            | Self::Unreachable(_)
            | Self::Verdict(_) => true,
            Self::Broken(_) | Self::TimedOut(_) | Self::Forged(_) => false,
        }
    }

    const fn outcome(&self) -> Forwarded {
        match self {
            Self::Unsealable(_) => Forwarded::TooLarge,
            Self::Unverified(_) => Forwarded::Unverified,
            Self::Refused => Forwarded::Refused,
            Self::Address(_) | Self::Unreachable(_) => Forwarded::Unreachable,
            Self::Broken(_) => Forwarded::Broken,
            Self::TimedOut(_) => Forwarded::TimedOut,
            Self::Forged(_) => Forwarded::Forged,
            Self::Verdict(verdict) => Forwarded::Declined(*verdict),
        }
    }
}

impl PeerClient {
    /// Asks as the worker of this gate.
    #[must_use]
    pub fn new(gate: Arc<Gate>) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT_LIMIT));
        tcp.set_keepalive(Some(KEEPALIVE));
        tcp.set_keepalive_interval(Some(KEEPALIVE));
        tcp.set_keepalive_retries(Some(KEEPALIVE_RETRIES));
        let connections = Pool::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_CONNECTION)
            .pool_max_idle_per_host(IDLE_CONNECTIONS_PER_WORKER_MAX)
            .build(tcp);
        Self { gate, connections }
    }

    /// Asks the worker `to` at the address that it `announced`, once, and answers when its reply begins. `head_limit` is how long that may
    /// take; none for what may take as long as a tool does.
    ///
    /// # Errors
    /// See [`PeerError`].
    pub async fn send(
        &self,
        to: &WorkerId,
        announced: &str,
        forward: &Forward,
        head_limit: Option<Duration>,
    ) -> Result<Response<PeerBody>, PeerError> {
        let started = Instant::now();
        let exchange = self.exchange(to, announced, forward);
        let settled = match head_limit {
            Some(limit) => tokio::time::timeout(limit, exchange)
                .await
                .unwrap_or(Err(PeerError::TimedOut(limit))),
            None => exchange.await,
        };
        let outcome = match &settled {
            Ok(_) => Forwarded::Served,
            Err(error) => error.outcome(),
        };
        metrics::forward(outcome, started.elapsed());
        match &settled {
            Err(error @ PeerError::Forged(_)) => {
                tracing::warn!(worker = %to, address = announced, %error, "what answered is not believed to be the worker that was asked");
            }
            Err(error @ PeerError::Unverified(_)) => {
                // A request tries again many times, and its failure is logged once.
                tracing::debug!(worker = %to, address = announced, %error, "request not forwarded");
            }
            _ => {}
        }
        settled
    }

    async fn exchange(
        &self,
        to: &WorkerId,
        announced: &str,
        forward: &Forward,
    ) -> Result<Response<PeerBody>, PeerError> {
        let address = self.gate.verify_address(to, announced)?;
        let uri: Uri = format!("http://{address}{PATH}")
            .parse()
            .map_err(PeerError::Address)?;
        let now_ms = super::unix_now_ms();
        let Sealed { front, exchange } = self.gate.seal(to, forward, now_ms)?;
        let mut request = Request::new(Full::new(front.chain(forward.body.clone())));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = uri;
        request.headers_mut().insert(CONTENT_TYPE, CONTENT);
        let reply = match self.connections.request(request).await {
            Ok(reply) => reply,
            Err(error) if is_refused(&error) => return Err(PeerError::Refused),
            Err(error) if error.is_connect() => return Err(PeerError::Unreachable(error)),
            Err(error) => return Err(PeerError::Broken(error.into())),
        };
        if reply.status() != StatusCode::OK {
            return Err(PeerError::Forged(Forgery::Unsigned(reply.status())));
        }
        let mut body = PeerBody::new(reply.into_body(), FrameDecoder::new(exchange));
        let head = body.head().await.map_err(unread_head)?;
        judge(head, to).map(|head| head.map(|()| body))
    }
}

impl fmt::Debug for PeerClient {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "PeerClient({})", self.gate.me())
    }
}

fn unread_head(error: PeerBodyError) -> PeerError {
    match error {
        PeerBodyError::Broken(error) => PeerError::Broken(error.into()),
        error => PeerError::Forged(Forgery::Head(error)),
    }
}

/// Whether the head is of the worker that was asked; or of its next run, which can only say that it is another.
fn judge(head: ReplyHead, to: &WorkerId) -> Result<Response<()>, PeerError> {
    let ReplyHead { from, outcome } = head;
    let is_next_run = from.name() == to.name() && matches!(outcome, Err(Verdict::NotHere));
    if from != *to && !is_next_run {
        return Err(PeerError::Forged(Forgery::OtherWorker));
    }
    outcome.map_err(PeerError::Verdict)
}
