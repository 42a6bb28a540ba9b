//! Servers: their health, their instances, and what is parked.

use axum::extract::Path;
use axum::response::Response;
use maud::{Markup, html};
use url::form_urlencoded;

use super::parts::problem_page;
use crate::http::rest::Problem;
use crate::http::ui::context::PageContext;
use crate::http::ui::html::{moment, nothing, state, table};
use crate::http::ui::layout;
use crate::http::ui::navigation::SERVERS;
use mooring_admin::{InstanceView, NoteView, ServerDetail, ServerView};
use mooring_settings::Right;

/// The servers of this gateway.
pub(super) async fn list(context: PageContext) -> Result<Response, Response> {
    context.require_one(SERVERS.rights)?;
    let operator = context.operator();
    Ok(match operator.servers(&context.operator_identity()).await {
        Ok(list) => {
            let content = html! {
                @if list.servers.is_empty() { (nothing("No server is configured.")) } @else { (server_table(&list.servers)) }
            };
            layout::page(&context, "Servers", Some(SERVERS), content)
        }
        Err(error) => problem_page(&context, "Servers", SERVERS, &Problem::from(error)),
    })
}

fn server_table(servers: &[ServerView]) -> Markup {
    let rows = html! {
        @for server in servers {
            @let health: &'static str = server.health.into();
            tr {
                td { a href=(format!("{}/{}", SERVERS.path, server.id)) { (server.id) } }
                td { (<&'static str>::from(server.kind)) }
                td { (state(health, health)) @if server.parked.is_some() { " " (state("parked", "parked")) } }
                td { (server.affinity.as_deref().unwrap_or_default()) }
                td.number { @if server.instances > 0 { (server.instances) } }
                td.number { (server.sessions) }
            }
        }
    };
    table(
        "Servers",
        &[
            "Server",
            "Kind",
            "Health",
            "Affinity",
            "#Instances",
            "#Sessions",
        ],
        rows,
    )
}

/// One server.
pub(super) async fn show(
    context: PageContext,
    Path(id): Path<String>,
) -> Result<Response, Response> {
    context.require_one(SERVERS.rights)?;
    let operator = context.operator();
    Ok(
        match operator.server(&context.operator_identity(), &id).await {
            Ok(server) => layout::page(
                &context,
                "Server",
                Some(SERVERS),
                server_content(&context, &server),
            ),
            Err(error) => problem_page(&context, "Server", SERVERS, &Problem::from(error)),
        },
    )
}

fn server_content(context: &PageContext, server: &ServerDetail) -> Markup {
    let ServerView {
        id,
        kind,
        health,
        affinity,
        sessions,
        parked,
        ..
    } = &server.summary;
    let health: &'static str = (*health).into();
    let may_use = context.app.core.policy.may_use(&context.identity, id);
    html! {
        dl.facts {
            div { dt { "Server" } dd { code { (id) } } }
            div { dt { "Kind" } dd { (<&'static str>::from(*kind)) } }
            div { dt { "Health, as this gateway sees it" } dd { (state(health, health)) } }
            @if let Some(affinity) = affinity { div { dt { "Affinity" } dd { (affinity) } } }
            div { dt { "Sessions" } dd { a href=(format!("/ui/sessions?text=server%3A{id}")) { (sessions) } } }
            @if let Some(note) = parked { div { dt { "Parked" } dd { (note_of(note)) } } }
            @if !server.members.is_empty() { div { dt { "Members" } dd {
                @for member in &server.members { a href=(format!("{}/{member}", SERVERS.path)) { (member) } " " }
            } } }
        }
        p {
            @if may_use { a href=(format!("/ui/call?server={id}")) { "Its tools" } " " }
            @if context.may(Right::ServersManage) { (park_link(id, None, parked.is_some())) }
        }
        @if !server.instance_list.is_empty() {
            h2 { "Instances" }
            (instance_table(context, id, &server.instance_list))
        }
    }
}

fn instance_table(context: &PageContext, server: &str, instances: &[InstanceView]) -> Markup {
    let rows = html! {
        @for instance in instances {
            @let health: &'static str = instance.health.into();
            tr {
                td { code { (instance.instance) } }
                td {
                    (state(health, health))
                    @if instance.is_unreached { " " (state("unavailable", "unreached")) }
                    @if let Some(note) = &instance.parked { " " (state("parked", "parked")) p.help { (note_of(note)) } }
                }
                td.number { (instance.sessions) }
                td { @if let Some(contact) = &instance.last_contact { (moment(&contact.at)) } }
                td {
                    @if let Some(contact) = &instance.last_contact {
                        (contact.outcome) @if let Some(cause) = &contact.cause { ": " (cause) }
                    }
                }
                td { @if context.may(Right::ServersManage) { (park_link(server, Some(&instance.instance), instance.parked.is_some())) } }
            }
        }
    };
    let headings = [
        "Instance",
        "Health",
        "#Sessions",
        "Last contact",
        "Outcome",
        "Act",
    ];
    table("Instances", &headings, rows)
}

fn note_of(note: &NoteView) -> Markup {
    html! { "by " (note.by) " " (moment(&note.at)) @if !note.note.is_empty() { ": " (note.note) } }
}

fn park_link(server: &str, instance: Option<&str>, is_parked: bool) -> Markup {
    let (act, label) = match is_parked {
        true => ("unpark", "Unpark"),
        false => ("park", "Park"),
    };
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("server", server);
    if let Some(instance) = instance {
        query.append_pair("instance", instance);
    }
    html! { a href=(format!("/ui/acts/{act}?{}", query.finish())) { (label) } }
}
