//! Long client requests that gateways tell each other of, so that any of them can cancel one.
//!
//! Invariant: best effort. Without an entry a cancellation has no effect, which MCP allows.

use std::time::Duration;

use mooring_secrets::digest;
use mooring_session::names::ServerName;

use super::error::StoreError;
use super::key::SessionKey;
use super::{Backend, Store, record_duration};

/// How long a request that was not published again is kept.
pub const REQUEST_KEPT: Duration = Duration::from_secs(60);
/// Domain separation of these digests from all others over the same secrets.
const DOMAIN: &str = "mooring request name";

/// The name of a client's request: a digest that only who knows the session can compute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestName(String);

impl RequestName {
    /// The name of a request by the id that its client wrote. `lane` distinguishes several clients of one session.
    #[must_use]
    pub fn new(
        key: &SessionKey,
        server: &ServerName,
        lane: Option<u64>,
        request_id_json: &str,
    ) -> Self {
        let lane = lane.map_or_else(String::new, |lane| lane.to_string());
        // The separator occurs in no part: keys and names are visible ASCII, and JSON text escapes it.
        let parts = [
            DOMAIN,
            key.secret(),
            server.as_str(),
            &lane,
            request_id_json,
        ];
        Self(digest::hex(parts.join("\0").as_bytes()))
    }

    /// The digest.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Store {
    /// Whether other gateways use the same store, through other processes' memory or files.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.redis().is_some()
    }

    /// Tells the other gateways the tag of a request, for [`REQUEST_KEPT`]. Does nothing if there are none.
    ///
    /// # Errors
    /// The store's own only.
    pub async fn publish_request(&self, name: &RequestName, tag: u128) -> Result<(), StoreError> {
        let Some(redis) = self.redis() else {
            return Ok(());
        };
        let started = std::time::Instant::now();
        let published = redis.publish_request(name, tag).await;
        record_duration("SET", started);
        published
    }

    /// The tag of a request that another gateway published.
    ///
    /// # Errors
    /// The store's own only.
    pub async fn find_request(&self, name: &RequestName) -> Result<Option<u128>, StoreError> {
        let Some(redis) = self.redis() else {
            return Ok(None);
        };
        let started = std::time::Instant::now();
        let found = redis.find_request(name).await;
        record_duration("GET", started);
        found
    }

    fn redis(&self) -> Option<&super::redis::RedisStore> {
        match &*self.backend {
            Backend::Redis(store, _) => Some(store),
            Backend::Fallback(store) => Some(store.redis()),
            _ => None,
        }
    }
}
