//! Identifies the caller of a request, and checks that the proof of a token's key is used for the first time.
//!
//! Invariant: a proof is accepted once in the whole fleet, while the store can be reached.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::{HeaderMap, HeaderValue, Method, Uri, request};
use mooring_session::time::Millis;

use super::app::App;
use mooring_identity::{
    Authentication, BoundToken, Identity, IdentityError, Peer, ProofError, UsedProof, now,
};
use mooring_pipeline::LatestSession;

/// The sender of a request: unknown until the gateway admits it.
#[derive(Debug)]
pub(super) struct RequestSender {
    pub(super) peer: Peer,
    /// The session that the connection has named last.
    pub(super) latest_session: Arc<LatestSession>,
    is_admitted: AtomicBool,
}

impl RequestSender {
    /// An unknown sender, over a connection from `peer`.
    pub(super) const fn over(peer: Peer, latest_session: Arc<LatestSession>) -> Self {
        Self {
            peer,
            latest_session,
            is_admitted: AtomicBool::new(false),
        }
    }

    /// Marks the sender as known: it is authenticated or, if `auth.mode` is `none`, has named an existing server.
    pub(super) fn admit(&self) {
        self.is_admitted.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_admitted(&self) -> bool {
        self.is_admitted.load(Ordering::Relaxed)
    }
}

/// The head of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestHead<'a> {
    pub(super) sender: &'a RequestSender,
    pub(super) method: &'a Method,
    pub(super) uri: &'a Uri,
    pub(super) headers: &'a HeaderMap,
}

impl<'a> RequestHead<'a> {
    /// That of a request of this sender.
    pub(super) const fn of(sender: &'a RequestSender, head: &'a request::Parts) -> Self {
        Self {
            sender,
            method: &head.method,
            uri: &head.uri,
            headers: &head.headers,
        }
    }
}

/// Why a request is refused before anything else is seen of it, and how its sender finds out what to send instead.
#[derive(Debug)]
pub(super) struct CallerRefusal {
    pub(super) error: IdentityError,
    pub(super) challenge: Option<HeaderValue>,
}

impl App {
    /// Who sends the request.
    ///
    /// # Errors
    /// It is counted and logged already.
    pub(super) async fn identify(
        &self,
        head: RequestHead<'_>,
    ) -> Result<Arc<Identity>, CallerRefusal> {
        let peer = &head.sender.peer;
        let identified = self
            .authenticator
            .identify(peer, head.headers, head.uri.query())
            .await;
        let caller = match identified {
            Ok(Authentication::Complete(caller)) => Ok(caller),
            Ok(Authentication::NeedsProof(token)) => Box::pin(self.prove(token, head)).await,
            Err(error) => Err(error),
        };
        if caller.is_ok() && self.authenticator.authenticates() {
            head.sender.admit();
        }
        caller.map_err(|error| {
            self.authenticator.note_refused(peer.address.ip(), error);
            CallerRefusal {
                challenge: self.identity_challenge(error, head),
                error,
            }
        })
    }

    async fn prove(
        &self,
        token: BoundToken,
        head: RequestHead<'_>,
    ) -> Result<Arc<Identity>, IdentityError> {
        let base = self.base_url(head).ok_or(ProofError::WrongUrl)?;
        let url = base + head.uri.path();
        let (caller, proof) = token.prove(head.headers, head.method, &url, now())?;
        self.use_proof(&proof).await?;
        Ok(caller)
    }

    /// A rate of one in the time for which a proof could be accepted: the second use is beyond it, at whichever gateway.
    async fn use_proof(&self, proof: &UsedProof) -> Result<(), IdentityError> {
        let name = format!("dpop:{}", proof.name);
        let window_ms = u64::try_from(proof.remembered.as_millis()).unwrap_or(u64::MAX);
        let store = self.core.session_router.store();
        match store.rate(&name, 1, Millis::new(window_ms), 1).await {
            Ok(rated) if rated.allowed => Ok(()),
            Ok(_) => Err(ProofError::Replayed.into()),
            Err(error) => {
                tracing::warn!(%error, "the use of a proof could not be recorded, so its request is refused");
                Err(IdentityError::ProofUnchecked)
            }
        }
    }
}
