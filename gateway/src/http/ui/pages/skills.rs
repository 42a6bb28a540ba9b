//! Skills: the list, one skill with its source and versions, and the decisions about them.

use axum::extract::Path;
use axum::response::Response;
use maud::{Markup, html};
use serde_json::Value;
use strum::VariantNames as _;
use url::form_urlencoded;

use super::json::{is_true, items, moment, text};
use super::parts::{
    act, choice, chosen_server, code_servers, governed, problem_page, sentence, server_choice,
};
use crate::http::governance::approvals::{self, ApprovalDecision};
use crate::http::governance::{RequestedItem, skills};
use crate::http::rest::Problem;
use crate::http::ui::context::{PageContext, PostedForm};
use crate::http::ui::html::{self as page_html, Notice, nothing, state, table};
use crate::http::ui::layout;
use crate::http::ui::navigation::SKILLS;
use mooring_code::skills::SkillStatus;
use mooring_settings::Right;

/// The skills of a server.
pub(super) async fn list(context: PageContext) -> Result<Response, Response> {
    context.require_one(SKILLS.rights)?;
    let servers = code_servers(&context);
    let Some(server) = chosen_server(&context, &servers) else {
        let content = nothing("There is no server of kind code.");
        return Ok(layout::page(&context, "Skills", Some(SKILLS), content));
    };
    let query = context.query_of(&["status"]);
    let item = RequestedItem {
        server: &server,
        query: Some(&query),
        ..RequestedItem::default()
    };
    let found = match governed(&context, item) {
        Ok(governed) => skills::list_json(&governed).await,
        Err(problem) => Err(problem),
    };
    let filters = context.query();
    let status = filters.get("status").map_or("", String::as_str);
    let content = html! {
        form.filters method="get" action=(SKILLS.path) {
            (server_choice(&servers, &server))
            (choice("Status", "status", "all", SkillStatus::VARIANTS, status))
            button type="submit" { "Show" }
        }
        @match &found {
            Ok(found) => (list_of(&server, found)),
            Err(problem) => (page_html::notice(&Notice::problem(sentence(problem.message())))),
        }
    };
    Ok(layout::page(&context, "Skills", Some(SKILLS), content))
}

fn list_of(server: &str, found: &Value) -> Markup {
    let rows = html! {
        @for skill in items(found, "skills") {
            @let status = status_of(skill);
            tr {
                td { a href=(path_of(server, skill)) { code { (text(skill, "name")) } } }
                td.number { (text(skill, "version")) }
                td { (state(&status, &status)) @if is_true(skill, "is_active") { " " (state("active", "in use")) } }
                td { (text(skill, "scope")) }
                td { (text(skill, "owner_email")) }
                td { (moment(skill, "created_at")) }
            }
        }
    };
    html! {
        @if items(found, "skills").is_empty() { (nothing("No skills.")) } @else {
            (table("Skills", &["Name", "#Version", "Status", "Scope", "Author", "Created"], rows))
        }
    }
}

fn status_of(skill: &Value) -> String {
    match is_true(skill, "approval_expired") {
        true => "expired".to_owned(),
        false => text(skill, "status"),
    }
}

fn path_of(server: &str, skill: &Value) -> String {
    format!(
        "{}/{server}/{}?version={}",
        SKILLS.path,
        text(skill, "name"),
        text(skill, "version")
    )
}

/// One version of a skill.
pub(super) async fn show(
    context: PageContext,
    Path((server, name)): Path<(String, String)>,
) -> Result<Response, Response> {
    context.require_one(SKILLS.rights)?;
    let query = context.query_of(&["version"]);
    let item = RequestedItem {
        server: &server,
        named: Some(&name),
        query: Some(&query),
    };
    let found = match governed(&context, item) {
        Ok(governed) => skills::skill_with_source(&governed).await,
        Err(problem) => Err(problem),
    };
    Ok(match found {
        Ok(skill) => {
            let content = skill_content(&context, &server, &skill);
            layout::page(&context, "Skill", Some(SKILLS), content)
        }
        Err(problem) => problem_page(&context, "Skill", SKILLS, &problem),
    })
}

fn skill_content(context: &PageContext, server: &str, skill: &Value) -> Markup {
    let status = status_of(skill);
    html! {
        @if let Some(decision) = context.query().get("done") { (page_html::notice(&Notice::done(done_text(decision)))) }
        dl.facts {
            div { dt { "Name" } dd { code { (text(skill, "name")) } } }
            div { dt { "Version" } dd { (text(skill, "version")) } }
            div { dt { "Status" } dd { (state(&status, &status)) @if is_true(skill, "is_active") { " " (state("active", "in use")) } } }
            div { dt { "Scope" } dd { (text(skill, "scope")) } }
            div { dt { "Author" } dd { (text(skill, "owner_email")) } }
            div { dt { "Created" } dd { (moment(skill, "created_at")) } }
            @for (label, field) in [("Approved by", "approved_by"), ("Rejected by", "rejected_by"),
                ("Reason", "rejection_reason"), ("Revoked by", "revoked_by"), ("May be approved until", "approval_expires_at")] {
                @let value = text(skill, field);
                @if !value.is_empty() { div { dt { (label) } dd { (value) } } }
            }
        }
        p { (text(skill, "description")) }
        (acts(context, server, skill))
        section {
            h2 { "Source" }
            pre tabindex="0" aria-label="Source" { (text(skill, "source_code")) }
        }
        section {
            h2 { "Versions" }
            ul { @for version in items(skill, "versions") {
                @let status = status_of(version);
                li { a href=(path_of(server, version)) { "Version " (text(version, "version")) } " " (state(&status, &status)) }
            } }
        }
    }
}

/// What the operator may decide about this version now.
fn acts(context: &PageContext, server: &str, skill: &Value) -> Markup {
    let path = format!("{}/{server}/{}/decide", SKILLS.path, text(skill, "name"));
    let fields = |decision: &str, id: &str| {
        html! {
            input type="hidden" name="decision" value=(decision);
            input type="hidden" name="id" value=(id);
            input type="hidden" name="version" value=(text(skill, "version"));
        }
    };
    let approval = text(skill, "approval_id");
    let is_pending = text(skill, "status") == "pending" && !is_true(skill, "approval_expired");
    let who = match text(skill, "scope") {
        scope if scope == "server" => "all users of the server".to_owned(),
        scope => scope,
    };
    let reason = html! {
        (fields("reject", &approval))
        label for="reason" { "Reason" }
        input #reason type="text" name="reason" maxlength="500";
    };
    html! {
        div.acts {
            @if is_pending && context.may(Right::SkillsApprove) {
                (act(context, &path, "Approve", &format!("New code sessions of {who} can import this version."), fields("approve", &approval)))
                (act(context, &path, "Reject", "The version is never used. Its author sees the reason.", reason))
            }
            @if text(skill, "status") == "approved" && context.may(Right::SkillsRevoke) {
                (act(context, &path, "Revoke", "No new code session gets this version. This cannot be undone.", fields("revoke", &text(skill, "id"))))
            }
        }
    }
}

fn done_text(decision: &str) -> &'static str {
    match decision {
        "approve" => "The version is approved.",
        "reject" => "The version is rejected.",
        "revoke" => "The version is revoked.",
        _ => "Done.",
    }
}

/// Approves, rejects or revokes a version.
pub(super) async fn decide(
    Path((server, name)): Path<(String, String)>,
    form: PostedForm,
) -> Result<Response, Response> {
    let context = &form.context;
    context.require_one(SKILLS.rights)?;
    let decision = form.text("decision");
    let decided = match decision {
        "approve" => decide_approval(&form, &server, ApprovalDecision::Approve).await,
        "reject" => {
            let reason = form.text("reason").to_owned();
            decide_approval(&form, &server, ApprovalDecision::Reject { reason }).await
        }
        _ => revoke(&form, &server).await,
    };
    Ok(match decided {
        Ok(_) => {
            let query = form_urlencoded::Serializer::new(String::new())
                .append_pair("version", form.text("version"))
                .append_pair("done", decision)
                .finish();
            page_html::see_other(&format!("{}/{server}/{name}?{query}", SKILLS.path))
        }
        Err(problem) => problem_page(context, "Skill", SKILLS, &problem),
    })
}

async fn decide_approval(
    form: &PostedForm,
    server: &str,
    decision: ApprovalDecision,
) -> Result<Value, Problem> {
    let governed = governed(&form.context, item_of(form, server))?;
    let approval = approvals::visible_approval(&governed).await?;
    approval.decide(&governed, decision).await
}

async fn revoke(form: &PostedForm, server: &str) -> Result<Value, Problem> {
    let governed = governed(&form.context, item_of(form, server))?;
    skills::revoke_skill(&governed).await
}

fn item_of<'a>(form: &'a PostedForm, server: &'a str) -> RequestedItem<'a> {
    RequestedItem {
        server,
        named: Some(form.text("id")),
        query: None,
    }
}
