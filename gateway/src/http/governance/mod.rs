//! The REST interface: the runs, sessions, security events and skills of code servers, for operators and their tools, and
//! the credentials that users store for servers.
//!
//! ```text
//! GET  /servers/{id}/code/runs                       ?limit= &status= &user= &before=
//! GET  /servers/{id}/code/runs/{run}
//! POST /servers/{id}/code/runs/{run}/replay          {mode}
//! GET  /servers/{id}/code/sessions                   ?limit= &user=
//! GET  /servers/{id}/code/security-events            ?limit= &user= &kind= &since=
//! GET  /servers/{id}/skills                          ?status= &name=
//! POST /servers/{id}/skills                          {name, source_code, language, description, scope}
//! GET  /servers/{id}/skills/{name}                   ?version=
//! GET  /servers/{id}/skills/approvals                ?status=
//! POST /servers/{id}/skills/approvals/{approval}/approve
//! POST /servers/{id}/skills/approvals/{approval}/reject   {reason}
//! POST /servers/{id}/skills/{skill id}/revoke
//! GET    /credentials
//! DELETE /credentials                                ?user=
//! PUT    /servers/{id}/credential                    {secret}
//! DELETE /servers/{id}/credential
//! GET    /whoami
//! ```
//!
//! Invariants: what a principal may not see is reported as not found. An error has a stable code and contains no path
//! of the host.

mod approvals;
mod blocking;
mod body;
mod context;
mod credentials;
mod events;
mod problem;
mod query;
mod replay;
mod runs;
mod sessions;
mod skills;
mod whoami;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post, put};

pub(super) use self::body::read as read_body;
pub(super) use self::problem::{Code, Problem};
pub(super) use self::whoami::CallerContext;
use super::app::App;

/// The routes; the caller adds the host and origin guard.
pub(super) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/servers/{id}/code/runs", get(runs::list))
        .route("/servers/{id}/code/runs/{run}", get(runs::show))
        .route("/servers/{id}/code/runs/{run}/replay", post(replay::replay))
        .route("/servers/{id}/code/sessions", get(sessions::list))
        .route("/servers/{id}/code/security-events", get(events::list))
        .route(
            "/servers/{id}/skills",
            get(skills::list).post(skills::create),
        )
        .route("/servers/{id}/skills/{skill}", get(skills::show))
        .route("/servers/{id}/skills/{skill}/revoke", post(skills::revoke))
        .route("/servers/{id}/skills/approvals", get(approvals::list))
        .route(
            "/servers/{id}/skills/approvals/{approval}/approve",
            post(approvals::approve),
        )
        .route(
            "/servers/{id}/skills/approvals/{approval}/reject",
            post(approvals::reject),
        )
        .route(
            "/credentials",
            get(credentials::list).delete(credentials::delete_all),
        )
        .route("/whoami", get(whoami::show))
        .route(
            "/servers/{id}/credential",
            put(credentials::put).delete(credentials::delete),
        )
        .method_not_allowed_fallback(not_allowed)
}

/// The answer to another method than a path has.
pub(super) async fn not_allowed() -> Problem {
    Problem::new(
        problem::Code::MethodNotAllowed,
        "this path takes another method",
    )
}
