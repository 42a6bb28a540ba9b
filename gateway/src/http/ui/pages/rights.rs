//! Rights: what a user with these teams, roles and scopes may use and do, and by which rule.

use axum::response::Response;
use maud::{Markup, html};
use mooring_session::names::Principal;

use super::parts::{problem_page, sentence};
use crate::http::rest::Problem;
use crate::http::ui::context::PageContext;
use crate::http::ui::html::{self as page_html, Notice, state, table};
use crate::http::ui::layout;
use crate::http::ui::navigation::RIGHTS;
use mooring_admin::CallerRights;
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
    let operator = context.operator();
    Ok(
        match operator.rights_of(&context.operator_identity(), &caller) {
            Ok(rights) => {
                let content = html! { (form) (rights_content(&rights)) };
                layout::page(&context, "Rights", Some(RIGHTS), content)
            }
            Err(error) => problem_page(&context, "Rights", RIGHTS, &Problem::from(error)),
        },
    )
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
