//! Passing on: what another worker owns is asked of that worker, and its reply streams back.
//!
//! Invariant: a reply that comes from a worker that has been counted as dead does not go on: whoever took over answers
//! for the session from then on.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap};
use http::{HeaderName, Method};
use http_body::{Body as HttpBody, Frame};
use mooring_session::names::Principal;
use mooring_session::view::OwnerView;
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::super::{Affinity, Session};
use super::table::Place;
use crate::fleet::{Forward, Operation, Verdict};
use crate::mcp::header::{LAST_EVENT_ID, MCP_PROTOCOL_VERSION};
use crate::peer::{PeerBody, PeerClient, PeerError};
use crate::upstream::{Body, BodyError, Outgoing, Reply, SendError, Server};

/// What of a request's head a connection looks at.
const HEADERS: [HeaderName; 3] = [CONTENT_TYPE, LAST_EVENT_ID, MCP_PROTOCOL_VERSION];
/// Longest wait for an answer that no tool takes part in.
const CLOSED_WITHIN: Duration = Duration::from_secs(5);
/// Longest wait for a connection that its owner makes anew: the other worker waits for the server to start.
const RENEWED_WITHIN: Duration = Duration::from_secs(120);

impl Affinity {
    /// Has the owner of a connection serve a message.
    pub(super) async fn pass_on(
        &self,
        owner: &OwnerView,
        place: &Place,
        principal: &Principal,
        epoch: u64,
        outgoing: &Outgoing,
    ) -> Result<Reply, SendError> {
        let headers = HEADERS
            .iter()
            .filter_map(|name| Some((name.clone(), outgoing.headers().get(name)?.clone())))
            .collect();
        let forward = Forward {
            headers,
            method: outgoing.method().clone(),
            body: outgoing.body().clone(),
            ..about(Operation::Serve, place, principal, epoch)
        };
        let (peers, address) = self.way_to(owner)?;
        let dead = self.owned().deaths.of(&owner.worker);
        let asked = peers.send(&owner.worker, address, &forward, None);
        let reply = tokio::select! {
            reply = asked => reply.map_err(refused)?,
            // Whether it was served before is not known.
            () = dead.cancelled() => return Err(SendError::OwnerBroken("it is counted as dead".into())),
        };
        Ok(reply.map(|body| {
            Body::made(Passed {
                body,
                dead: Box::pin(dead.cancelled_owned()),
            })
        }))
    }

    /// Has a living owner make its lost connection anew. Whatever comes of it, the store knows.
    pub(in super::super) async fn have_renewed(
        &self,
        owner: &OwnerView,
        session: &Session,
        server: &Server,
        epoch: u64,
    ) {
        let place = Place::of(session, server);
        let forward = about(Operation::Renew, &place, &session.principal, epoch);
        if let Err(error) = self.ask(owner, &forward, RENEWED_WITHIN).await {
            tracing::info!(session = %session.digest, server = %server.id, %error, "the owner of a lost connection did not make it anew");
        }
    }

    /// Has the owner of a connection close it.
    pub(in super::super) async fn have_closed(
        &self,
        owner: &OwnerView,
        place: &Place,
        principal: &Principal,
        epoch: u64,
    ) -> Result<(), SendError> {
        let forward = about(Operation::Close, place, principal, epoch);
        self.ask(owner, &forward, CLOSED_WITHIN).await
    }

    /// Has the worker that holds a legacy client's stream take a message for it.
    ///
    /// # Errors
    /// See [`SendError`].
    pub async fn pass_on_to_stream(
        &self,
        owner: &OwnerView,
        place: &Place,
        principal: &Principal,
        epoch: u64,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Reply, SendError> {
        let forward = Forward {
            headers,
            method: Method::POST,
            body,
            ..about(Operation::Stream, place, principal, epoch)
        };
        let (peers, address) = self.way_to(owner)?;
        let reply = peers
            .send(&owner.worker, address, &forward, Some(RENEWED_WITHIN))
            .await
            .map_err(refused)?;
        Ok(reply.map(|body| {
            Body::made(Passed {
                body,
                dead: Box::pin(self.owned().deaths.of(&owner.worker).cancelled_owned()),
            })
        }))
    }

    async fn ask(
        &self,
        owner: &OwnerView,
        forward: &Forward,
        limit: Duration,
    ) -> Result<(), SendError> {
        let (peers, address) = self.way_to(owner)?;
        let asked = peers.send(&owner.worker, address, forward, Some(limit));
        asked.await.map(|_| ()).map_err(refused)
    }

    fn way_to<'a>(&'a self, owner: &'a OwnerView) -> Result<(&'a PeerClient, &'a str), SendError> {
        let away = |text: &str| SendError::OwnerAway(text.into());
        let peers = (self.owned().peers.as_ref())
            .ok_or_else(|| away("this worker has no key to ask others with"))?;
        let address = owner.address.as_deref();
        Ok((
            peers,
            address.ok_or_else(|| away("its address is not known"))?,
        ))
    }
}

/// A forward without a message.
fn about(operation: Operation, place: &Place, principal: &Principal, epoch: u64) -> Forward {
    Forward {
        operation,
        session_key: place.key.secret().into(),
        principal: principal.clone(),
        server: place.server.clone(),
        epoch,
        method: Method::POST,
        headers: HeaderMap::new(),
        body: Bytes::new(),
    }
}

fn refused(error: PeerError) -> SendError {
    match error {
        PeerError::Verdict(Verdict::NotHere | Verdict::Unsupported) => SendError::Elsewhere,
        PeerError::Verdict(Verdict::Draining) => SendError::OwnerDraining,
        PeerError::Verdict(Verdict::Ended) => SendError::Ended("its owner says so".into()),
        error if error.is_undelivered() => SendError::OwnerAway(error.to_string().into()),
        error => SendError::OwnerBroken(error.to_string().into()),
    }
}

/// A reply of another worker, until that is counted as dead.
struct Passed {
    body: PeerBody,
    dead: Pin<Box<WaitForCancellationFutureOwned>>,
}

/// The worker was counted as dead in the middle of its reply.
#[derive(Debug, thiserror::Error)]
#[error("the worker that holds the connection is counted as dead")]
struct OwnerDied;

impl HttpBody for Passed {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if polled.is_pending() && self.dead.as_mut().poll(context).is_ready() {
            return Poll::Ready(Some(Err(BodyError::Peer(Box::new(OwnerDied)))));
        }
        polled.map_err(|error| BodyError::Peer(Box::new(error)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}
