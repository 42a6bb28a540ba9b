//! The part of the REST interface that changes this gateway while it runs.
//!
//! ```text
//! POST /admin/reload
//! ```
//!
//! Invariant: every change needs a right, and has a line in the log of target `audit`.

mod reload;

use std::sync::Arc;

use axum::Router;
use axum::routing::post;

use super::app::App;
use super::governance::not_allowed;

/// The routes; the caller adds the host and origin guard.
pub(super) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/admin/reload", post(reload::reload))
        .method_not_allowed_fallback(not_allowed)
}
