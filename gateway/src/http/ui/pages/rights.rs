//! Rights: what a user with these teams, roles and scopes may use and do, by which rule, and what the user was refused lately.

use axum::response::Response;
use maud::{Markup, html};
use mooring_session::names::Principal;

use super::parts::{missing_gateways, problem_page, sentence};
use crate::http::rest::Problem;
use crate::http::ui::context::PageContext;
use crate::http::ui::html::{self as page_html, Notice, nothing, state, table};
use crate::http::ui::layout;
use crate::http::ui::navigation::RIGHTS;
use mooring_admin::{CallerRights, OperatorError, UserRefusals};
use mooring_identity::Identity;

/// The fields of the form beside the user, each a list.
const LISTS: [(&str, &str); 3] = [("teams", "Teams"), ("roles", "Roles"), ("scopes", "Scopes")];

/// The form, and the rights of the caller that it describes.
pub(super) async fn show(context: PageContext) -> Result<Response, Response> {
    context.require_one(RIGHTS.rights)?;
    let query = context.query();
    let field = |name: &str| query.get(name).map_or("", String::as_str);
    let form = html! {
        form.filters method="get" action=(RIGHTS.path) {
            label { "User" input type="search" name="user" value=(field("user")) required data-search; }
            @for (name, label) in LISTS { label { (label) input type="text" name=(name) value=(field(name)); } }
            button type="submit" { "Check" }
        }
        p.help { "Several teams, roles or scopes are separated by commas. The check is against the settings of this gateway." }
    };
    if field("user").is_empty() {
        return Ok(layout::page(&context, "Rights", Some(RIGHTS), form));
    }
    let names = |name: &str| -> Vec<String> {
        let names = field(name).split(',').map(str::trim);
        names
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect()
    };
    let principal = match Principal::parse(field("user").as_bytes()) {
        Ok(principal) => principal,
        Err(error) => {
            let notice = page_html::notice(&Notice::problem(sentence(&error.to_string())));
            let content = html! { (form) (notice) };
            return Ok(layout::page(&context, "Rights", Some(RIGHTS), content));
        }
    };
    let caller = Identity {
        teams: names("teams").into(),
        roles: names("roles"),
        scopes: names("scopes"),
        ..Identity::of(principal)
    };
    Ok(match explain(&context, &caller).await {
        Ok((rights, refusals)) => {
            let content = html! { (form) (rights_content(&rights)) (refusals_content(&refusals)) };
            layout::page(&context, "Rights", Some(RIGHTS), content)
        }
        Err(error) => problem_page(&context, "Rights", RIGHTS, &Problem::from(error)),
    })
}

/// What the caller may do, and what its user was refused.
async fn explain(
    context: &PageContext,
    caller: &Identity,
) -> Result<(CallerRights, UserRefusals), OperatorError> {
    let (operator, identity) = (context.operator(), context.operator_identity());
    let rights = operator.rights_of(&identity, caller)?;
    let refusals = operator.refusals_of(&identity, &caller.principal).await?;
    Ok((rights, refusals))
}

fn refusals_content(refusals: &UserRefusals) -> Markup {
    let missing = refusals.missing.iter();
    let missing = missing.map(|(worker, problem)| (worker.as_str(), problem.as_str()));
    let rows = html! {
        @for (worker, refusal) in &refusals.refusals {
            tr {
                td { (refusal.ago_ms / 1000) " s ago" }
                td { code { (refusal.server.as_deref().unwrap_or_default()) } }
                td { code { (refusal.tool.as_deref().unwrap_or_default()) } }
                td { (refusal.reason) }
                td.number { (refusal.times) }
                td { code { (worker) } }
            }
        }
    };
    let headings = ["Last", "Server", "Tool", "Because", "#Times", "Gateway"];
    html! {
        h2 { "Latest refusals" }
        (missing_gateways(missing))
        @if refusals.refusals.is_empty() { (nothing("This user was refused nothing.")) } @else {
            (table("Latest refusals", &headings, rows))
        }
    }
}

fn rights_content(rights: &CallerRights) -> Markup {
    let rows = html! {
        @for access in &rights.servers {
            tr {
                td { code { (access.server) } }
                td { @if access.may_use { (state("ok", "yes")) } @else { (state("unavailable", "no")) } }
                td { (access.tools.join("; ")) }
                td {
                    (access.basis)
                    @if !access.missing_scopes.is_empty() { ". It lacks the scopes " code { (access.missing_scopes.join(" ")) } }
                }
            }
        }
    };
    html! {
        dl.facts {
            div { dt { "User" } dd { (rights.user) } }
            div { dt { "Digest in the log" } dd { code { (rights.digest) } } }
            div { dt { "Rights" } dd {
                @if rights.rights.is_empty() { "none" } @else { (rights.rights.join(", ")) }
            } }
        }
        (table("Servers", &["Server", "May use it", "Tools", "Because"], rows))
    }
}
