//! A question of one gateway to another for what only that one counts, and the answer: for operators, about no session.
//!
//! Invariant: an answer is bounded in size and time, and a gateway without one is named to the operator who asks.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt, Full, Limited};
use mooring_session::names::WorkerId;

use super::client::{PeerClient, PeerError, ReplyAbandoned};

/// The path of the requests.
pub(super) const PATH: &str = "/peer/v2/figures";
/// Most bytes of a question.
pub(super) const QUESTION_BYTES_MAX: usize = 1024;
/// Most bytes of an answer.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;
/// How long a gateway may take to answer.
const ANSWERED_WITHIN: Duration = Duration::from_secs(3);

/// Why a gateway's figures are missing.
#[derive(Debug, thiserror::Error)]
pub enum FiguresError {
    /// This gateway cannot ask others.
    #[error("this gateway has no fleet key")]
    NoFleetKey,
    /// There was no answer.
    #[error(transparent)]
    Unanswered(#[from] PeerError),
    /// Its answer broke off, or is too large.
    #[error("its answer is incomplete, or larger than {ANSWER_BYTES_MAX} bytes")]
    Incomplete,
}

impl PeerClient {
    /// Asks the gateway `to` for figures; `question` is what [`super::PeerService::figures`] gets.
    ///
    /// # Errors
    /// See [`FiguresError`].
    pub async fn ask_figures(
        &self,
        to: &WorkerId,
        announced: &str,
        question: Bytes,
    ) -> Result<Bytes, FiguresError> {
        let mut request = Request::new(Full::new(question));
        *request.method_mut() = Method::POST;
        let timed_out = async {
            tokio::time::sleep(ANSWERED_WITHIN).await;
            ReplyAbandoned::TimedOut(ANSWERED_WITHIN)
        };
        let reply = self
            .exchange(to, announced, request, PATH, timed_out)
            .await?;
        let body = Limited::new(reply.into_body(), ANSWER_BYTES_MAX).collect();
        match tokio::time::timeout(ANSWERED_WITHIN, body).await {
            Ok(Ok(body)) => Ok(body.to_bytes()),
            Ok(Err(_)) | Err(_) => Err(FiguresError::Incomplete),
        }
    }
}
