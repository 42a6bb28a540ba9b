//! What the gateway that answers knows of itself.

use schemars::JsonSchema;
use serde::Serialize;

use mooring_pipeline::ServingCore;
use mooring_store::{StoreMode, rfc3339};

/// The gateway that answers.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct LocalGatewayView {
    /// Its id.
    pub worker: String,
    /// Whether it stops: it finishes what it has.
    pub is_stopping: bool,
    /// The bindings that it uses.
    pub active_bindings: u64,
    /// The connections that it owns.
    pub owned_connections: u64,
    /// Its store.
    pub store: StoreView,
}

/// A gateway's store.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct StoreView {
    /// `redis`, or `embedded` for a file or memory.
    pub kind: String,
    /// `normal`; `degraded` while memory serves what it can; `unavailable`.
    pub mode: String,
    /// Since when (RFC 3339).
    pub since: String,
    /// The address of the Redis in use; none while there is no connection, and for another store.
    pub address: Option<String>,
    /// Why there is none.
    pub problem: Option<String>,
}

impl LocalGatewayView {
    pub(crate) fn of(core: &ServingCore) -> Self {
        let router = &core.session_router;
        let store = router.store();
        let status = store.status();
        let redis = store.redis_server();
        let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        Self {
            worker: router.worker().to_string(),
            is_stopping: core.relay.stopping.is_cancelled(),
            active_bindings: count(router.active_bindings().count()),
            owned_connections: count(router.owned_connections().count()),
            store: StoreView {
                kind: store.kind().to_owned(),
                mode: match status.mode {
                    StoreMode::Normal => "normal",
                    StoreMode::Degraded => "degraded",
                    StoreMode::Unavailable => "unavailable",
                }
                .to_owned(),
                since: rfc3339(unix_ms(status.since)),
                address: redis.as_ref().and_then(|redis| redis.address.clone()),
                problem: redis.and_then(|redis| redis.problem),
            },
        }
    }
}

fn unix_ms(moment: std::time::SystemTime) -> u64 {
    let since = moment.duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}
