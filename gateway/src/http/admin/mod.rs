//! The part of the REST interface that changes this gateway while it runs.
//!
//! ```text
//! POST   /admin/reload
//! POST   /admin/servers
//! PATCH  /admin/servers/{id}
//! DELETE /admin/servers/{id}
//! ```
//!
//! Invariant: every change needs a right, and has a line in the log of target `audit`.

mod reload;
mod servers_changes;

use std::sync::Arc;

use axum::Router;
use axum::routing::{patch, post};

use super::app::App;
use super::governance::not_allowed;

/// The routes; the caller adds the host and origin guard.
pub(super) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/admin/reload", post(reload::reload))
        .route("/admin/servers", post(servers_changes::add))
        .route(
            "/admin/servers/{id}",
            patch(servers_changes::change).delete(servers_changes::remove),
        )
        .method_not_allowed_fallback(not_allowed)
}
