//! Which request a client's cancellation names.
//!
//! A request has an id of the gateway's own upstream, so a cancellation has to be sent with that. The gateway that sent
//! the request knows it. The owner of a connection knows its requests. For cancellations that arrive elsewhere, gateways
//! publish in the store what runs for longer than [`PUBLISHED_AFTER`]: the tag for servers without owners, and which member
//! of a group is meant. Invariant: a call that ends earlier costs the store nothing.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use mooring_session::rules::Ownership;

use super::{Session, SessionRouter};
use crate::in_flight_requests::{InFlightRequest, RequestScope};
use crate::request_tag::session_tag;
use mooring_protocol::{Kind, Lane, Message, PendingRequest, RequestTag};
use mooring_store::{RequestName, StoreError};
use mooring_upstream::Server;

/// Age at which a request is published to the other gateways.
const PUBLISHED_AFTER: Duration = Duration::from_millis(250);
/// How often it is published again; shorter than the store keeps it.
const PUBLISHED_EVERY: Duration = Duration::from_secs(20);
/// Interval of looking for such requests.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How long a cancellation waits for its request to be published: as long as that takes.
const UNPUBLISHED_WAIT: Duration = Duration::from_millis(750);

const _: () = assert!(PUBLISHED_EVERY.as_millis() * 2 < mooring_store::REQUEST_KEPT.as_millis());

/// The request that a message cancels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelledRequest {
    /// The message cancels no request.
    None,
    /// The request has this tag.
    Tagged(RequestTag),
    /// The owner of the connection knows it, if there is one.
    KnownToOwner,
    /// No such request is in flight, as far as known.
    NotFound,
}

/// Gateways publish no requests, or the store is away.
#[derive(Debug)]
struct NotPublished;

impl SessionRouter {
    /// Begins a client's request: gives it a tag and notes it for cancellations. `None` for other messages.
    #[must_use]
    pub fn begin_request(
        &self,
        session: &Session,
        server: &Server,
        message: &Message<'_>,
        lane: Option<Lane>,
    ) -> Option<InFlightRequest> {
        let id = message.id().filter(|_| message.kind() == Kind::Request)?;
        let pending = PendingRequest {
            id_json: id.as_json().into(),
            tag: session_tag(session, &server.id),
        };
        let scope = RequestScope::Session(session.key.clone(), server.id.clone(), lane);
        Some(self.in_flight_requests().begin(scope, pending))
    }

    /// Finds the request that a client's message cancels, at any gateway.
    pub async fn find_cancelled(
        &self,
        session: &Session,
        server: &Server,
        message: &Message<'_>,
        lane: Option<Lane>,
    ) -> CancelledRequest {
        let Some(id_json) = message.cancelled_request() else {
            return CancelledRequest::None;
        };
        let scope = RequestScope::Session(session.key.clone(), server.id.clone(), lane);
        if let Some(tag) = self.in_flight_requests().cancel(&scope, id_json) {
            return CancelledRequest::Tagged(tag);
        }
        if lane.is_some() {
            // The client is one process, whose requests are all here. Another client of the session may use the same id.
            return CancelledRequest::NotFound;
        }
        if server.ownership == Ownership::Owned {
            return CancelledRequest::KnownToOwner;
        }
        match self.find_published(session, &[server], id_json).await {
            Ok(Some((_, tag))) => CancelledRequest::Tagged(tag),
            Ok(None) | Err(_) => CancelledRequest::NotFound,
        }
    }

    /// To which of a group's members a cancellation of the client's request `id_json` goes: to the one that has the request,
    /// at whichever gateway. Where that cannot be known, to all whose connections have owners, which know it.
    pub async fn find_cancelled_members<'a>(
        &self,
        session: &Session,
        members: &[&'a Arc<Server>],
        id_json: &str,
        lane: Option<Lane>,
    ) -> Vec<&'a Arc<Server>> {
        let scope = |server: &&Arc<Server>| {
            RequestScope::Session(session.key.clone(), server.id.clone(), lane)
        };
        let scopes: Vec<_> = members.iter().map(scope).collect();
        let here = self.in_flight_requests().find(&scopes, id_json);
        let found = match here {
            Some(place) => Ok(Some(place)),
            // As above.
            None if lane.is_some() => Ok(None),
            None => {
                let servers: Vec<&Server> = members.iter().map(|server| &***server).collect();
                let found = self.find_published(session, &servers, id_json).await;
                found.map(|found| found.map(|(place, _)| place))
            }
        };
        match found {
            Ok(Some(place)) => members.get(place).copied().into_iter().collect(),
            Ok(None) => Vec::new(),
            Err(NotPublished) => {
                let is_owned = |server: &&&Arc<Server>| server.ownership == Ownership::Owned;
                members.iter().filter(is_owned).copied().collect()
            }
        }
    }

    /// Which of these servers has a request that a gateway published, and its tag. One that began a moment ago is waited
    /// for.
    async fn find_published(
        &self,
        session: &Session,
        servers: &[&Server],
        id_json: &str,
    ) -> Result<Option<(usize, RequestTag)>, NotPublished> {
        if !self.store().is_shared() {
            return Err(NotPublished);
        }
        let name = |server: &&Server| RequestName::new(&session.key, &server.id, id_json);
        let names: Vec<_> = servers.iter().map(name).collect();
        for wait in [UNPUBLISHED_WAIT, Duration::ZERO] {
            let found = join_all(names.iter().map(|name| self.store().find_request(name))).await;
            for (place, found) in found.into_iter().enumerate() {
                match found {
                    Ok(Some(tag)) => return Ok(Some((place, RequestTag(tag)))),
                    Ok(None) => {}
                    Err(error) => {
                        tracing::info!(session = %session.digest, %error, "the request of a cancellation could not be looked up");
                        return Err(NotPublished);
                    }
                }
            }
            tokio::time::sleep(wait).await;
        }
        Ok(None)
    }

    async fn publish_once(&self) -> Result<(), StoreError> {
        let unpublished =
            (self.in_flight_requests()).take_unpublished(PUBLISHED_AFTER, PUBLISHED_EVERY);
        let mut published = Ok(());
        for (scope, request) in unpublished {
            let RequestScope::Session(key, server, lane) = scope else {
                continue;
            };
            // A request with a lane can be cancelled by its own gateway only.
            if lane.is_some() || !self.store().is_shared() {
                continue;
            }
            let name = RequestName::new(&key, &server, &request.id_json);
            if let Err(error) = self.store().publish_request(&name, request.tag.0).await {
                let scope = RequestScope::Session(key, server, lane);
                (self.in_flight_requests()).note_unpublished(&scope, request.tag);
                published = Err(error);
            }
        }
        published
    }
}

/// Publishes long requests, and forgets those of clients that are gone, for as long as the gateway runs.
pub async fn publish_requests(router: SessionRouter) {
    let mut ticks = tokio::time::interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if let Err(error) = router.publish_once().await {
            tracing::debug!(%error, "requests in flight were not published");
        }
    }
}
