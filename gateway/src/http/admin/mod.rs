//! The admin API: what operators see of a fleet and do with it, over `mooring_admin`.
//!
//! Invariants: each function checks its right before it reads anything. An act from a page of another origin is refused,
//! also where callers are not authenticated. A reply holds no secret.

mod context;
mod fleet;
mod reload;
mod rights;
mod servers;
mod servers_changes;
mod sessions;
mod workers;

use super::rest::RestRoute;

/// The routes.
pub(super) fn routes() -> Vec<RestRoute> {
    [
        sessions::routes(),
        workers::routes(),
        servers::routes(),
        servers_changes::routes(),
        reload::routes(),
        fleet::routes(),
        rights::routes(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
