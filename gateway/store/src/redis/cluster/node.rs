//! One primary of a cluster: the link to it, and the connections for its events.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use mooring_settings::RedisEndpoint;
use tokio::time::Instant;

use super::super::dial::Dialer;
use super::super::events::EventConnections;
use super::super::link::Link;
use super::super::link_entry::LinkEntry;
use super::super::link_state::LinkState;
use crate::error::{NotReady, OpenError, StoreError};
use crate::key::Family;
use crate::lock::lock;
use crate::status::RedisPrimaryView;

/// How long a node is kept that was named by ASK, and by no layout: it imports its first slots.
const IMPORTER_KEPT_FOR: Duration = Duration::from_secs(60);

/// Without the marker of the fleet's way, which a cluster has not.
fn entry(prefix: &str) -> LinkEntry {
    LinkEntry {
        heads: Family::heads(prefix),
        checks: Vec::new(),
    }
}

/// A primary.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) endpoint: Arc<RedisEndpoint>,
    pub(super) link: Link,
    pub(super) events: EventConnections,
    /// When a key of a slot that it imports was last asked for.
    imported_at: Mutex<Option<Instant>>,
}

impl Node {
    /// Connects, or finds that it is unreachable.
    ///
    /// # Errors
    /// It is reachable but refuses this client, or lacks what this gateway needs.
    pub(super) async fn open(
        endpoint: RedisEndpoint,
        prefix: &str,
        command_timeout: Duration,
    ) -> Result<Arc<Self>, OpenError> {
        let endpoint = Arc::new(endpoint);
        let dialer = Arc::new(Dialer::of_node(Arc::clone(&endpoint), command_timeout));
        let link = Link::open(Arc::clone(&dialer), entry(prefix)).await?;
        Ok(Self::with_link(endpoint, dialer, link, prefix))
    }

    /// Connects in the background: commands wait for it.
    pub(super) fn start(
        endpoint: RedisEndpoint,
        prefix: &str,
        command_timeout: Duration,
    ) -> Arc<Self> {
        let endpoint = Arc::new(endpoint);
        let dialer = Arc::new(Dialer::of_node(Arc::clone(&endpoint), command_timeout));
        let link = Link::start(Arc::clone(&dialer), entry(prefix));
        Self::with_link(endpoint, dialer, link, prefix)
    }

    fn with_link(
        endpoint: Arc<RedisEndpoint>,
        dialer: Arc<Dialer>,
        link: Link,
        prefix: &str,
    ) -> Arc<Self> {
        Arc::new(Self {
            endpoint,
            events: EventConnections::new(dialer, link.watch(), prefix, None),
            link,
            imported_at: Mutex::default(),
        })
    }

    pub(super) fn note_import(&self) {
        *lock(&self.imported_at) = Some(Instant::now());
    }

    /// Whether it may have keys of slots that it does not serve yet. One that cannot be reached is not kept for them.
    pub(super) fn is_importing(&self) -> bool {
        let imported_at = *lock(&self.imported_at);
        imported_at.is_some_and(|at| at.elapsed() < IMPORTER_KEPT_FOR)
            && !matches!(&*self.link.watch().borrow(), LinkState::Down(_))
    }

    /// It cannot be reached, and the command was not sent or may be repeated.
    pub(super) fn away(&self) -> StoreError {
        StoreError::NotReady(NotReady::PrimaryAway(self.name()))
    }

    /// It was lost before the reply.
    pub(super) fn lost(&self) -> StoreError {
        StoreError::NotReady(NotReady::PrimaryLost(self.name()))
    }

    fn name(&self) -> Box<str> {
        self.endpoint.address.to_string().into()
    }

    pub(super) fn view(&self) -> RedisPrimaryView {
        let server = self.link.server();
        RedisPrimaryView {
            address: self.endpoint.address.to_string(),
            problem: match server.address {
                Some(_) => server.problem,
                None => Some(server.problem.unwrap_or_else(|| "connecting".to_owned())),
            },
        }
    }
}
