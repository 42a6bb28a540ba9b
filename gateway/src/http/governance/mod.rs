//! The runs, sessions, security events and skills of code servers, for operators and their tools, the credentials that users
//! store for servers, and who a caller is. [`routes`] has the paths.
//!
//! The functions that answer with JSON are those of the operators' page too, so that both apply the same rights.
//!
//! Invariants: what a principal may not see is reported as not found. An error has a stable code and contains no path
//! of the host.

pub(super) mod approvals;
mod blocking;
mod context;
mod credentials;
pub(super) mod events;
pub(super) mod replay;
pub(super) mod runs;
mod schemas;
mod sessions;
pub(super) mod skills;
mod whoami;

#[cfg(test)]
mod tests;

use http::StatusCode;

use super::rest::RestRoute;
use mooring_settings::Right;

pub(super) use self::context::{GovernanceContext, RequestedItem};

/// The routes. What a person decides about code, or runs of it, and what is a user's own secret, is no tool.
pub(super) fn routes() -> Vec<RestRoute> {
    [code_routes(), skill_routes(), caller_routes()]
        .into_iter()
        .flatten()
        .collect()
}

fn code_routes() -> Vec<RestRoute> {
    vec![
        RestRoute::get(
            "/servers/{id}/code/runs",
            "Lists recorded runs, newest first: one's own, or with the right `servers.read` all",
            runs::list,
        )
        .query(&runs::LIST_QUERY)
        .reading_tool("runs_list")
        .replies::<schemas::RunList>(),
        RestRoute::get(
            "/servers/{id}/code/runs/{run}",
            "Shows all that is recorded of a run",
            runs::show,
        )
        .reading_tool("runs_show")
        .replies::<schemas::Run>(),
        RestRoute::post(
            "/servers/{id}/code/runs/{run}/replay",
            "Runs the code of a record again in the caller's session, and compares",
            replay::replay,
        )
        .body::<replay::ReplayBody>()
        .no_tool()
        .replies::<schemas::ReplayResult>(),
        RestRoute::get(
            "/servers/{id}/code/sessions",
            "Lists sessions of code: one's own, or with the right `servers.read` all",
            sessions::list,
        )
        .query(&sessions::LIST_QUERY)
        .reading_tool("code_sessions_list")
        .replies::<schemas::CodeSessionList>(),
        RestRoute::get(
            "/servers/{id}/code/security-events",
            "Lists security events, newest first: one's own, or with the right `servers.read` all",
            events::list,
        )
        .query(&events::LIST_QUERY)
        .reading_tool("security_events_list")
        .replies::<schemas::SecurityEventList>(),
    ]
}

fn skill_routes() -> Vec<RestRoute> {
    vec![
        RestRoute::get(
            "/servers/{id}/skills",
            "Lists the versions of skills that the caller may see",
            skills::list,
        )
        .query(&skills::LIST_QUERY)
        .reading_tool("skills_list")
        .replies::<schemas::SkillList>(),
        RestRoute::post(
            "/servers/{id}/skills",
            "Makes a skill, or a new version of one",
            skills::create,
        )
        .needs(Right::SkillsCreate)
        .body::<skills::NewSkillBody>()
        .status(StatusCode::CREATED)
        .no_tool()
        .replies::<schemas::SkillVersion>(),
        RestRoute::get(
            "/servers/{id}/skills/{skill}",
            "Shows the skill of this name with its source",
            skills::show,
        )
        .query(&skills::SHOW_QUERY)
        .reading_tool("skills_show")
        .replies::<schemas::Skill>(),
        RestRoute::post(
            "/servers/{id}/skills/{skill}/revoke",
            "Revokes the version with this id",
            skills::revoke,
        )
        .needs(Right::SkillsRevoke)
        .body::<skills::EmptyBody>()
        .no_tool()
        .replies::<schemas::SkillVersion>(),
        RestRoute::get(
            "/servers/{id}/skills/approvals",
            "Lists approvals: of one's own skills, or with the right `skills.approve` all",
            approvals::list,
        )
        .query(&approvals::LIST_QUERY)
        .reading_tool("approvals_list")
        .replies::<schemas::ApprovalList>(),
        RestRoute::post(
            "/servers/{id}/skills/approvals/{approval}/approve",
            "Approves a version of a skill",
            approvals::approve,
        )
        .needs(Right::SkillsApprove)
        .body::<skills::EmptyBody>()
        .no_tool()
        .replies::<schemas::Approval>(),
        RestRoute::post(
            "/servers/{id}/skills/approvals/{approval}/reject",
            "Rejects a version of a skill, for good",
            approvals::reject,
        )
        .needs(Right::SkillsApprove)
        .body::<approvals::RejectionBody>()
        .no_tool()
        .replies::<schemas::Approval>(),
    ]
}

fn caller_routes() -> Vec<RestRoute> {
    vec![
        RestRoute::get(
            "/credentials",
            "Lists the servers that the caller may store credentials for",
            credentials::list,
        )
        .no_tool()
        .replies::<credentials::CredentialList>(),
        RestRoute::delete(
            "/credentials",
            "Deletes all credentials that a user has stored",
            credentials::delete_all,
        )
        .query(&credentials::DELETE_QUERY)
        .no_tool()
        .replies::<credentials::DeletedCredentials>(),
        RestRoute::put(
            "/servers/{id}/credential",
            "Stores the caller's credential for a server",
            credentials::put,
        )
        .body::<credentials::CredentialBody>()
        .no_tool()
        .replies::<credentials::CredentialView>(),
        RestRoute::delete(
            "/servers/{id}/credential",
            "Deletes the caller's credential for a server",
            credentials::delete,
        )
        .no_tool()
        .replies::<credentials::CredentialView>(),
        RestRoute::get(
            "/whoami",
            "Shows who the gateway takes the caller for, and what it may use",
            whoami::show,
        )
        .reading_tool("whoami")
        .replies::<whoami::Caller>(),
    ]
}
