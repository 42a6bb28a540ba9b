//! Listing, showing, creating and revoking skills.

use std::collections::HashMap;

use axum::extract::Request;
use axum::response::Response;
use http::StatusCode;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::blocking::blocking;
use super::context::GovernanceContext;
use crate::http::reply::json_value;
use crate::http::rest::{Code, Problem, QueryParameter, read_body};
use mooring_code::records::{EventKind, SecurityEvent};
use mooring_code::server::GovernedServer;
use mooring_code::skills::{CreateError, NewSkill, Scope, Skill, SkillStatus};
use mooring_settings::{Language, Right};
use mooring_store::unix_now_ms;

/// The body that creates a skill.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewSkillBody {
    name: String,
    #[serde(alias = "source")]
    source_code: String,
    language: Option<String>,
    #[serde(default)]
    description: String,
    scope: Option<String>,
}

/// The parameters of one skill.
pub(super) const SHOW_QUERY: [QueryParameter; 1] = [QueryParameter::new(
    "version",
    "this version; the newest visible one by default",
)];

/// The parameters of a list.
pub(super) const LIST_QUERY: [QueryParameter; 2] = [
    QueryParameter::new("status", "`pending`, `approved`, `rejected` or `revoked`"),
    QueryParameter::new("name", "versions of the skill of this name"),
];

/// `GET /servers/{id}/skills`
pub(super) async fn list(context: GovernanceContext) -> Result<Response, Problem> {
    let skills = list_json(&context).await?;
    Ok(json_value(StatusCode::OK, &skills))
}

/// The skills that the query asks for.
pub(in crate::http) async fn list_json(context: &GovernanceContext) -> Result<Value, Problem> {
    let query = context.query(&LIST_QUERY)?;
    let status: Option<SkillStatus> = query.choice("status")?;
    let name = query.text("name").map(str::to_owned);
    let governed = context.governed()?;
    let all = all_versions(&governed).await?;
    let (is_visible, newest) = (visibility_filter(context), newest(&all));
    let is_wanted = |skill: &&Skill| {
        is_visible(skill)
            && status.is_none_or(|status| skill.status == status)
            && name.as_ref().is_none_or(|name| skill.name == *name)
    };
    let skills: Vec<Value> = all
        .iter()
        .filter(is_wanted)
        .map(|skill| skill_json(&governed, skill, &newest))
        .collect();
    Ok(json!({"skills": skills}))
}

/// `GET /servers/{id}/skills/{name}`: the newest visible version or the requested one with its source, and all others
/// without.
pub(super) async fn show(context: GovernanceContext) -> Result<Response, Problem> {
    let skill = skill_with_source(&context).await?;
    Ok(json_value(StatusCode::OK, &skill))
}

/// The skill in the path, with its source and its versions.
pub(in crate::http) async fn skill_with_source(
    context: &GovernanceContext,
) -> Result<Value, Problem> {
    let query = context.query(&SHOW_QUERY)?;
    let version: Option<u32> =
        query.read("version", "a number from 1", |text| text.parse().ok())?;
    let governed = context.governed()?;
    let all = all_versions(&governed).await?;
    let (is_visible, newest) = (visibility_filter(context), newest(&all));
    let visible: Vec<&Skill> = all
        .iter()
        .filter(|skill| skill.name == context.path_id() && is_visible(skill))
        .collect();
    let is_requested = |skill: &&&Skill| version.is_none_or(|version| skill.version == version);
    let skill = visible
        .iter()
        .rfind(is_requested)
        .ok_or_else(Problem::no_skill)?;
    let mut shown = skill_json(&governed, skill, &newest);
    let versions: Vec<Value> = visible
        .iter()
        .map(|skill| skill_json(&governed, skill, &newest))
        .collect();
    let source = {
        let (governed, skill) = (governed.clone(), Skill::clone(skill));
        blocking(move || governed.skills.source(&governed.server, &skill)).await?
    };
    if let Value::Object(fields) = &mut shown {
        fields.insert("source_code".to_owned(), source.into());
        fields.insert("versions".to_owned(), versions.into());
    }
    Ok(shown)
}

/// `POST /servers/{id}/skills`
pub(super) async fn create(
    context: GovernanceContext,
    request: Request,
) -> Result<Response, Problem> {
    context.query(&[])?;
    context.require(Right::SkillsCreate)?;
    let new_skill: NewSkillBody = read_body(&context.app, &context.identity, request).await?;
    let governed = context.governed()?;
    let language = match new_skill.language.as_deref() {
        None => governed.language,
        Some(word) => Language::parse(word).ok_or_else(|| {
            Problem::new(
                Code::SkillInvalid,
                "language is python, typescript or javascript",
            )
        })?,
    };
    let new = NewSkill {
        scope: scope(&context, &governed, new_skill.scope.as_deref())?,
        name: new_skill.name,
        language,
        source: new_skill.source_code,
        description: new_skill.description,
        author: context.identity.principal.as_str().to_owned(),
    };
    let principal = context.identity.principal.clone();
    let (skill, governed) = blocking(move || {
        let GovernedServer {
            server,
            skills,
            patterns,
            ..
        } = &governed;
        let name = new.name.clone();
        let made = skills.create(server, new, governed.requires_approval, patterns);
        if let Err(error @ CreateError::Blocked(_)) = &made {
            let message = format!("the skill {name:?} was refused: {error}");
            let event = SecurityEvent::new(EventKind::PolicyBlock, message);
            governed.records.event(server, &principal, &event);
        }
        made.map(|skill| (skill, governed))
    })
    .await?;
    let all = all_versions(&governed).await?;
    let reply = skill_json(&governed, &skill, &newest(&all));
    Ok(json_value(StatusCode::CREATED, &reply))
}

/// `POST /servers/{id}/skills/{skill id}/revoke`
pub(super) async fn revoke(
    context: GovernanceContext,
    request: Request,
) -> Result<Response, Problem> {
    let EmptyBody {} = read_body(&context.app, &context.identity, request).await?;
    let revoked = revoke_skill(&context).await?;
    Ok(json_value(StatusCode::OK, &revoked))
}

/// Revokes the skill in the path.
pub(in crate::http) async fn revoke_skill(context: &GovernanceContext) -> Result<Value, Problem> {
    context.query(&[])?;
    context.require(Right::SkillsRevoke)?;
    let governed = context.governed()?;
    let skill = all_versions(&governed)
        .await?
        .into_iter()
        .find(|skill| skill.id == context.path_id());
    let skill = skill
        .filter(visibility_filter(context))
        .ok_or_else(Problem::no_skill)?;
    let by = context.identity.principal.as_str().to_owned();
    let changed = {
        let governed = governed.clone();
        blocking(move || governed.skills.revoke(&governed.server, &skill.id, &by)).await
    };
    context.audit("skills.revoke", &changed);
    let changed = changed?;
    let all = all_versions(&governed).await?;
    Ok(skill_json(&governed, &changed, &newest(&all)))
}

/// An empty body.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct EmptyBody {}

/// Every version of every skill of the server.
pub(super) async fn all_versions(governed: &GovernedServer) -> Result<Vec<Skill>, Problem> {
    let governed = governed.clone();
    blocking(move || governed.skills.all(&governed.server)).await
}

/// A filter for the versions that the caller may see: approved versions of the caller's scopes, all versions of these
/// scopes for callers with the right to approve or revoke, the caller's own, and all for an admin. The caller's rights
/// are evaluated once for all versions.
pub(super) fn visibility_filter(context: &GovernanceContext) -> impl Fn(&Skill) -> bool {
    let (viewer, is_admin) = (context.viewer(), context.is_admin());
    let decides = context.may(Right::SkillsApprove) || context.may(Right::SkillsRevoke);
    move |skill: &Skill| {
        let is_in_scope = viewer.sees(&skill.scope);
        is_admin
            || skill.owner_email == viewer.principal
            || (is_in_scope && (decides || skill.status == SkillStatus::Approved))
    }
}

/// The newest approved version for each name and scope.
type Newest<'a> = HashMap<(&'a str, &'a Scope), u32>;

fn newest(all: &[Skill]) -> Newest<'_> {
    let mut newest = Newest::new();
    let approved = |skill: &&Skill| skill.status == SkillStatus::Approved;
    for skill in all.iter().filter(approved) {
        let best = newest.entry((&skill.name, &skill.scope)).or_default();
        *best = skill.version.max(*best);
    }
    newest
}

/// The skill as JSON. The newest approved version in its scope, which is the one that sessions mount, is active.
fn skill_json(governed: &GovernedServer, skill: &Skill, newest: &Newest<'_>) -> Value {
    let of: (&str, &Scope) = (&skill.name, &skill.scope);
    let is_newest = newest
        .get(&of)
        .is_none_or(|version| *version <= skill.version);
    let is_active = skill.status == SkillStatus::Approved && is_newest;
    skill.to_json(governed.server.as_str(), is_active, unix_now_ms())
}

/// The scope of a new skill: the requested one, or that of the server. If the settings give the server a scope, no
/// other is allowed; otherwise a principal may choose itself and its teams, and an admin any scope.
fn scope(
    context: &GovernanceContext,
    governed: &GovernedServer,
    asked: Option<&str>,
) -> Result<Scope, Problem> {
    let of_server = Scope::of_settings(governed.skills_scope.as_ref());
    let scope = match asked {
        None => of_server.clone(),
        Some(text) => Scope::parse(text).ok_or_else(|| {
            let message = "scope is server, team:<id> or user:<email>";
            Problem::new(Code::SkillInvalid, message)
        })?,
    };
    let is_of_server = scope == of_server || of_server == Scope::Server;
    let is_own = context.is_admin() || context.viewer().sees(&scope);
    if is_of_server && is_own {
        return Ok(scope);
    }
    Err(Problem::new(
        Code::Forbidden,
        "a skill cannot be made for others than those of this server, of a team of one's own, or oneself",
    ))
}
