//! The pages: one file for each, with its acts.

mod acts;
mod events;
mod fleet;
mod json;
mod parts;
mod reload;
mod rights;
mod runs;
mod servers;
mod session;
mod sessions;
mod skills;
mod start;
mod traffic;
mod try_call;
mod wire;

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};

use crate::http::app::App;

/// The paths of the pages and their acts.
pub(super) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/ui", get(start::show))
        .route("/ui/fleet", get(fleet::show))
        .route("/ui/fleet/live", get(fleet::live))
        .route("/ui/traffic", get(traffic::show))
        .route("/ui/traffic/live", get(traffic::live))
        .route("/ui/sessions", get(sessions::list))
        .route("/ui/sessions/{session}", get(session::show))
        .route("/ui/sessions/{session}/live", get(session::live))
        .route("/ui/servers", get(servers::list))
        .route("/ui/servers/{server}", get(servers::show))
        .route("/ui/rights", get(rights::show))
        .route("/ui/acts/{act}", get(acts::preview).post(acts::perform))
        .route("/ui/runs", get(runs::list))
        .route("/ui/runs/{server}/{run}", get(runs::show))
        .route("/ui/runs/{server}/{run}/replay", post(runs::replay))
        .route("/ui/skills", get(skills::list))
        .route("/ui/skills/{server}/{name}", get(skills::show))
        .route("/ui/skills/{server}/{name}/decide", post(skills::decide))
        .route("/ui/events", get(events::list))
        .route("/ui/events/live", get(events::live))
        .route("/ui/reload", get(reload::show).post(reload::reload))
        .route("/ui/call", get(try_call::show).post(try_call::call))
}
