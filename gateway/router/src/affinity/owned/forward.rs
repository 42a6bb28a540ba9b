//! Forwarding: a message for a connection that a peer owns is sent to that peer, and its reply is streamed back.
//!
//! Invariant: a reply of a peer that counts as dead is cut off, because from then on the session's new owner answers.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap};
use http::{HeaderName, Method};
use http_body::{Body as HttpBody, Frame};
use hyper::body::Incoming;
use mooring_session::names::{InstanceName, Principal};
use mooring_session::view::OwnerView;
use tokio::time::sleep;

use super::super::{Session, SessionRouter};
use super::connection_table::ConnectionKey;
use super::death_watch::DeathWatch;
use mooring_peers::{Forward, Operation, PeerClient, PeerError, ReplyAbandoned, Verdict};
use mooring_protocol::header::{LAST_EVENT_ID, MCP_PROTOCOL_VERSION};
use mooring_protocol::{Reply, ReplyError};
use mooring_upstream::{ANSWER_BYTES_MAX, Outgoing, SendError, Server, read_http};
use mooring_usage::MemoryShare;

/// The request headers that a connection uses.
const HEADERS: [HeaderName; 3] = [CONTENT_TYPE, LAST_EVENT_ID, MCP_PROTOCOL_VERSION];
/// Time limit for a peer's answer in which no server takes part.
const CLOSED_WITHIN: Duration = Duration::from_secs(5);
/// How long an answer that a peer sent before it counted as dead may be in transit. A peer that stops in order has sent
/// every answer by then.
const IN_TRANSIT_WITHIN: Duration = Duration::from_millis(250);
/// Most bytes of an event besides its message: the names of its fields, its id and its line ends.
const EVENT_FRAMING_BYTES_MAX: usize = 4 * 1024;
/// Time limit for an owner to renew its connection, which includes the server's start.
const RENEWED_WITHIN: Duration = Duration::from_secs(120);

impl SessionRouter {
    /// Forwards a message to the owner of its connection.
    pub(super) async fn forward_message(
        &self,
        owner: &OwnerView,
        place: &ConnectionKey,
        principal: &Principal,
        epoch: u64,
        outgoing: &Outgoing,
    ) -> Result<Reply, SendError> {
        outgoing.check_permit()?;
        let headers = HEADERS
            .iter()
            .filter_map(|name| Some((name.clone(), outgoing.headers().get(name)?.clone())))
            .collect();
        let forward = Forward {
            headers,
            method: outgoing.method().clone(),
            body: outgoing.body().clone(),
            ..forward_request(Operation::Serve, place, principal, epoch)
        };
        self.forward(owner, &forward, outgoing.memory(), None).await
    }

    /// Asks a live owner to renew its lost connection. The result is in the store.
    pub(in super::super) async fn renew_at_owner(
        &self,
        owner: &OwnerView,
        session: &Session,
        server: &Server,
        epoch: u64,
    ) {
        let place = ConnectionKey::of(session, server);
        let forward = forward_request(Operation::Renew, &place, &session.principal, epoch);
        if let Err(error) = self.ask(owner, &forward, RENEWED_WITHIN).await {
            tracing::info!(session = %session.digest, server = %server.id, %error, "the owner did not renew a lost connection");
        }
    }

    /// Asks a live owner to move its binding, to this instance if one is named.
    pub(in super::super) async fn move_at_owner(
        &self,
        owner: &OwnerView,
        session: &Session,
        server: &Server,
        epoch: u64,
        to: Option<&InstanceName>,
    ) -> Result<(), SendError> {
        let place = ConnectionKey::of(session, server);
        let forward = Forward {
            body: to.map_or_else(Bytes::new, |to| {
                Bytes::copy_from_slice(to.as_str().as_bytes())
            }),
            ..forward_request(Operation::Move, &place, &session.principal, epoch)
        };
        self.ask(owner, &forward, RENEWED_WITHIN).await
    }

    /// Asks the owner of a connection to close it.
    pub(in super::super) async fn close_at_owner(
        &self,
        owner: &OwnerView,
        place: &ConnectionKey,
        principal: &Principal,
        epoch: u64,
    ) -> Result<(), SendError> {
        let forward = forward_request(Operation::Close, place, principal, epoch);
        self.ask(owner, &forward, CLOSED_WITHIN).await
    }

    /// Forwards a message to the gateway that has the legacy client's stream.
    ///
    /// # Errors
    /// See [`SendError`].
    pub async fn forward_to_stream(
        &self,
        owner: &OwnerView,
        place: &ConnectionKey,
        principal: &Principal,
        epoch: u64,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Reply, SendError> {
        let forward = Forward {
            headers,
            method: Method::POST,
            body,
            ..forward_request(Operation::Stream, place, principal, epoch)
        };
        self.forward(owner, &forward, None, Some(RENEWED_WITHIN))
            .await
    }

    async fn ask(
        &self,
        owner: &OwnerView,
        forward: &Forward,
        limit: Duration,
    ) -> Result<(), SendError> {
        let reply = self.forward(owner, forward, None, Some(limit)).await?;
        // Read to its end, so that the connection can be reused. The request itself is done.
        let _ = tokio::time::timeout(limit, reply.body.read_text(ANSWER_BYTES_MAX)).await;
        Ok(())
    }

    /// Sends a request to a peer and waits for the head of its reply, at most `head_limit`. Neither the head nor the
    /// body is awaited once the peer counts as dead.
    async fn forward(
        &self,
        owner: &OwnerView,
        forward: &Forward,
        memory: Option<&Arc<MemoryShare>>,
        head_limit: Option<Duration>,
    ) -> Result<Reply, SendError> {
        let (peers, address) = self.peer_client(owner)?;
        let death_watch = self.owned_connections().death_watches.of(&owner.worker);
        let given_up = async {
            let timed_out = async {
                match head_limit {
                    Some(limit) => {
                        tokio::time::sleep(limit).await;
                        ReplyAbandoned::TimedOut(limit)
                    }
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                reason = timed_out => reason,
                () = counted_dead_for_a_while(death_watch.clone()) => ReplyAbandoned::CountedDead,
            }
        };
        let sending = peers.send(&owner.worker, address, forward, given_up);
        let reply = sending.await.map_err(refused)?.map(|body| ForwardedBody {
            body,
            death_watch: Box::pin(counted_dead_for_a_while(death_watch)),
        });
        // The owner has applied the limit to the message; here it is an event, with an id.
        let message_bytes_max = self.owned_connections().options.message_bytes_max;
        let event_bytes_max = message_bytes_max.saturating_add(EVENT_FRAMING_BYTES_MAX);
        Ok(read_http(
            reply,
            event_bytes_max,
            memory.cloned(),
            |error| error,
        ))
    }

    fn peer_client<'a>(
        &'a self,
        owner: &'a OwnerView,
    ) -> Result<(&'a PeerClient, &'a str), SendError> {
        let away = |text: &str| SendError::OwnerUnavailable(text.into());
        let peers = (self.owned_connections().peers.as_ref())
            .ok_or_else(|| away("this gateway has no fleet key"))?;
        let address = owner.address.as_deref();
        Ok((
            peers,
            address.ok_or_else(|| away("its address is not known"))?,
        ))
    }
}

/// A forward without a message.
fn forward_request(
    operation: Operation,
    place: &ConnectionKey,
    principal: &Principal,
    epoch: u64,
) -> Forward {
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
        PeerError::Verdict(Verdict::NotHere | Verdict::Unsupported) | PeerError::OtherGateway => {
            SendError::Elsewhere
        }
        error @ PeerError::Unverified(_) => SendError::OwnerUnverified(error.to_string().into()),
        PeerError::Verdict(Verdict::Draining) => SendError::OwnerDraining,
        PeerError::Verdict(Verdict::Ended) => SendError::Ended("its owner says so".into()),
        error if error.is_undelivered() => SendError::OwnerUnavailable(error.to_string().into()),
        error => SendError::OwnerBroken(error.to_string().into()),
    }
}

/// Returns [`IN_TRANSIT_WITHIN`] after the peer counts as dead, because earlier answers may still arrive.
async fn counted_dead_for_a_while(death_watch: DeathWatch) {
    death_watch.counted_dead().await;
    sleep(IN_TRANSIT_WITHIN).await;
}

/// The body of a peer's reply, cut off when the peer counts as dead.
struct ForwardedBody {
    body: Incoming,
    death_watch: Pin<Box<dyn Future<Output = ()> + Send>>,
}

/// The connection to the peer broke in the middle of its reply.
#[derive(Debug, thiserror::Error)]
#[error("the reply of another gateway broke off")]
struct ForwardBroke(#[source] hyper::Error);

/// The peer counted as dead in the middle of its reply.
#[derive(Debug, thiserror::Error)]
#[error("the gateway that owns the connection counts as dead")]
struct OwnerDied;

impl HttpBody for ForwardedBody {
    type Data = Bytes;
    type Error = ReplyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ReplyError>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if polled.is_pending() && self.death_watch.as_mut().poll(context).is_ready() {
            return Poll::Ready(Some(Err(ReplyError::broken(OwnerDied))));
        }
        polled.map_err(|error| ReplyError::broken(ForwardBroke(error)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}
