//! Streams that only one gateway of a fleet can have for a session: the client's GET stream, and the stream of a legacy
//! client. Each is an owned binding under a name that no server can have.
//!
//! Invariant: dropping a stream's hold releases the stream; the stream of a dead gateway can be taken over by any
//! other, and a binding that this gateway has without a stream by this gateway.

mod open_streams;
#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use mooring_session::Refusal;
use mooring_session::limits::LEASE_MIN;
use mooring_session::names::{InstanceName, NameError, Reason, ServerName, UpstreamSession};
use mooring_session::refusal::Busy;
use mooring_session::rules::{
    BindRequest, LossReport, Ownership, RebindRequest, RouteRequest, UnbindRequest,
};
use mooring_session::view::{BindingState, BindingView, OwnerView};

use self::open_streams::OpenStream;
pub(super) use self::open_streams::OpenStreams;
use super::{Session, SessionRouter};
use mooring_store::{StoreError, fresh_token};
use mooring_usage::for_same_user;

/// The prefix of these binding names. Server ids begin with a letter or a digit.
const PREFIX: char = '@';
/// The placeholder for instance and upstream session in them.
const NOTHING: &[u8] = b"stream";
/// How long to retry if the stream is open here: a client that reopens it may be faster than the end of its former
/// connection.
const HERE_WITHIN: Duration = Duration::from_millis(300);
/// How long to retry if it is open at a peer, which may have died: longer than the default `worker.beat_ttl_ms`, after
/// which the store counts the peer as dead.
const ELSEWHERE_WITHIN: Duration = Duration::from_millis(2_500);
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(50);

/// A stream that a session has at most once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamKind {
    /// The GET stream of Streamable HTTP.
    Get,
    /// The stream of HTTP+SSE, which is the session's only stream.
    Legacy,
}

impl StreamKind {
    const fn name(self) -> &'static [u8] {
        match self {
            Self::Get => b"@get",
            Self::Legacy => b"@sse",
        }
    }

    /// The name of its binding.
    fn server(self) -> Result<ServerName, NameError> {
        ServerName::parse(self.name())
    }
}

/// Whether a binding belongs to a stream rather than a server.
pub(super) fn is_stream(server: &ServerName) -> bool {
    server.as_str().starts_with(PREFIX)
}

/// Why a stream cannot be held here.
#[derive(Debug, thiserror::Error)]
pub enum HoldError {
    /// It is open, here or at a peer.
    #[error("the stream is already open")]
    Taken,
    /// This gateway is stopping.
    #[error("the gateway is stopping")]
    Draining,
    /// The store refused or was unreachable.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A name made by the gateway was refused, which is a defect.
    #[error(transparent)]
    Name(#[from] NameError),
}

/// A stream that this gateway has. Dropping it releases the stream in the background.
#[derive(Debug)]
pub struct StreamHold {
    router: SessionRouter,
    session: Session,
    server: ServerName,
    epoch: u64,
    /// Leaves the set before the store has released the stream; the next one here takes it over.
    _open: OpenStream,
}

/// The result of one attempt to hold a stream.
enum Attempt {
    Held(Box<StreamHold>),
    /// It is open elsewhere. Retry for at most this long.
    Taken {
        within: Duration,
    },
}

impl StreamHold {
    /// The epoch of the stream's binding.
    #[must_use]
    pub const fn epoch(&self) -> u64 {
        self.epoch
    }
}

impl Drop for StreamHold {
    fn drop(&mut self) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let unbind = UnbindRequest {
            principal: self.session.principal.clone(),
            server: self.server.clone(),
            epoch: self.epoch,
            token: None,
        };
        let (router, session) = (self.router.clone(), self.session.clone());
        runtime.spawn(for_same_user(async move {
            match router.store().unbind(&session.key, &unbind).await {
                // Taken over, or the session has ended: nothing to release.
                Ok(_) | Err(StoreError::Refused(_)) => {}
                Err(error) => {
                    tracing::info!(session = %session.digest, %error, "failed to release a stream; it is free for this gateway, and for others when this one ends");
                }
            }
        }));
    }
}

impl SessionRouter {
    /// Acquires a stream of the session. `None` while the store is unreachable, because then the stream's holder is
    /// unknown.
    ///
    /// # Errors
    /// See [`HoldError`].
    pub async fn hold_stream(
        &self,
        session: &Session,
        kind: StreamKind,
    ) -> Result<Option<StreamHold>, HoldError> {
        let begun = Instant::now();
        loop {
            match self.try_hold(session, kind).await {
                Ok(Attempt::Held(hold)) => return Ok(Some(*hold)),
                Ok(Attempt::Taken { within }) if begun.elapsed() >= within => {
                    return Err(HoldError::Taken);
                }
                Ok(Attempt::Taken { .. }) => tokio::time::sleep(PAUSE).await,
                Err(HoldError::Store(StoreError::Away(_))) => return Ok(None),
                Err(HoldError::Store(StoreError::Refused(Refusal::Busy(Busy::Draining)))) => {
                    return Err(HoldError::Draining);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The gateway that has a stream of the session, with the epoch; `None` if the stream is not open.
    ///
    /// # Errors
    /// `Store`, `Name`.
    pub async fn stream_owner(
        &self,
        session: &Session,
        kind: StreamKind,
    ) -> Result<Option<(OwnerView, u64)>, HoldError> {
        let route = RouteRequest {
            principal: session.principal.clone(),
            server: kind.server()?,
            worker: self.worker().clone(),
        };
        let routed = self.store().route(&session.key, &route).await?;
        let open = routed
            .binding
            .filter(|binding| binding.state == BindingState::Bound);
        Ok(open.and_then(|binding| Some((binding.owner?, binding.epoch))))
    }

    async fn try_hold(&self, session: &Session, kind: StreamKind) -> Result<Attempt, HoldError> {
        let server = kind.server()?;
        let Some(open) = self.open_streams().add(session, &server) else {
            return Ok(Attempt::Taken {
                within: HERE_WITHIN,
            });
        };
        let bind = BindRequest {
            principal: session.principal.clone(),
            server,
            worker: self.worker().clone(),
            token: fresh_token()?,
            lease: LEASE_MIN,
            instances: vec![InstanceName::parse(NOTHING)?],
            upstream_session: Some(UpstreamSession::parse(NOTHING)?),
            ownership: Ownership::Owned,
        };
        let bound = self.store().bind(&session.key, &bind).await?;
        if bound.won {
            return Ok(self.held(session, &bound.binding, open));
        }
        if bound.binding.state == BindingState::Orphaned {
            let reason = b"the worker that held the stream is dead";
            return self.take_over(session, &bound.binding, open, reason).await;
        }
        // An answer or a release was lost, or a client disconnected while its stream was opened.
        if (bound.binding.owner.as_ref()).is_some_and(|owner| self.is_owner(owner)) {
            let reason = b"the stream is not open";
            return self.take_over(session, &bound.binding, open, reason).await;
        }
        Ok(Attempt::Taken {
            within: ELSEWHERE_WITHIN,
        })
    }

    /// Takes over a stream without an owner, unless another gateway was faster.
    async fn take_over(
        &self,
        session: &Session,
        unused: &BindingView,
        open: OpenStream,
        reason: &[u8],
    ) -> Result<Attempt, HoldError> {
        let rebind = RebindRequest {
            principal: session.principal.clone(),
            server: unused.server.clone(),
            epoch: unused.epoch,
            worker: self.worker().clone(),
            token: fresh_token()?,
            lease: LEASE_MIN,
            instances: vec![InstanceName::parse(NOTHING)?],
            avoid: None,
            reason: Reason::parse(reason).ok(),
            upstream_session: Some(UpstreamSession::parse(NOTHING)?),
            ownership: Ownership::Owned,
            report: LossReport::ByCaller,
        };
        let rebound = self.store().rebind(&session.key, &rebind).await?;
        Ok(match rebound.won {
            true => self.held(session, &rebound.binding, open),
            false => Attempt::Taken {
                within: ELSEWHERE_WITHIN,
            },
        })
    }

    fn held(&self, session: &Session, binding: &BindingView, open: OpenStream) -> Attempt {
        Attempt::Held(Box::new(StreamHold {
            router: self.clone(),
            session: session.clone(),
            server: binding.server.clone(),
            epoch: binding.epoch,
            _open: open,
        }))
    }
}
