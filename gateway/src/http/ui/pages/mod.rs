//! The pages: one file for each, with its acts.

mod events;
mod json;
mod parts;
mod runs;
mod skills;
mod start;
mod try_call;
mod wire;

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};

use super::context::VIEWING;
use super::layout::NavigationItem;
use crate::http::app::App;
use mooring_settings::Right;

const RUNS: NavigationItem = NavigationItem {
    path: "/ui/runs",
    label: "Runs",
    key: 'r',
    rights: &[Right::ServersRead],
};
const SKILLS: NavigationItem = NavigationItem {
    path: "/ui/skills",
    label: "Skills",
    key: 'k',
    rights: &[
        Right::ServersRead,
        Right::SkillsApprove,
        Right::SkillsRevoke,
    ],
};
const EVENTS: NavigationItem = NavigationItem {
    path: "/ui/events",
    label: "Security events",
    key: 'e',
    rights: &[Right::ServersRead],
};
const TRY_CALL: NavigationItem = NavigationItem {
    path: "/ui/call",
    label: "Try a call",
    key: 'c',
    rights: &VIEWING,
};

/// Every page of the navigation, in its order.
pub(super) const NAVIGATION: [NavigationItem; 4] = [RUNS, SKILLS, EVENTS, TRY_CALL];

/// The paths of the pages and their acts.
pub(super) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/ui", get(start::show))
        .route("/ui/runs", get(runs::list))
        .route("/ui/runs/{server}/{run}", get(runs::show))
        .route("/ui/runs/{server}/{run}/replay", post(runs::replay))
        .route("/ui/skills", get(skills::list))
        .route("/ui/skills/{server}/{name}", get(skills::show))
        .route("/ui/skills/{server}/{name}/decide", post(skills::decide))
        .route("/ui/events", get(events::list))
        .route("/ui/events/live", get(events::live))
        .route("/ui/call", get(try_call::show).post(try_call::call))
}
