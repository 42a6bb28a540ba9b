//! Long client requests that gateways tell each other of, so that any of them can cancel one.
//!
//! Invariant: best effort. Without an entry a cancellation has no effect, which MCP allows.

use super::{Backend, Store, record_duration};
use crate::error::StoreError;
use crate::redis::RedisStore;
use crate::request_name::RequestName;

impl Store {
    /// Whether gateways tell each other of requests over this store.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.redis().is_some()
    }

    /// Tells the other gateways the tag of a request, for [`REQUEST_KEPT`](crate::REQUEST_KEPT). Does nothing if there are none.
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

    fn redis(&self) -> Option<&RedisStore> {
        match &*self.backend {
            Backend::Redis(store, _) => Some(store),
            Backend::Fallback(store) => Some(store.redis()),
            _ => None,
        }
    }
}
