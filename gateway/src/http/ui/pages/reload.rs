//! Reloading the settings of this gateway.

use axum::response::Response;
use maud::{Markup, html};

use super::parts::{act, problem_page, sentence};
use crate::http::rest::Problem;
use crate::http::ui::context::{PageContext, PostedForm};
use crate::http::ui::html::{self as page_html, Notice};
use crate::http::ui::layout;
use crate::http::ui::navigation::RELOAD;

const TITLE: &str = "Reload";

/// What a reload does, and the form that asks for one.
pub(super) async fn show(context: PageContext) -> Result<Response, Response> {
    context.require_one(RELOAD.rights)?;
    let content = form(&context);
    Ok(layout::page(&context, TITLE, Some(RELOAD), content))
}

/// Reloads, and shows what has changed.
pub(super) async fn reload(form: PostedForm) -> Result<Response, Response> {
    let context = &form.context;
    context.require_one(RELOAD.rights)?;
    let Some(reloads) = context.app.reloads.clone() else {
        let problem = Problem::internal();
        return Ok(problem_page(context, TITLE, RELOAD, &problem));
    };
    let result = reloads.reload().await;
    let outcome = if result.is_ok() { "done" } else { "refused" };
    let (operator, by) = (context.operator(), context.operator_identity());
    operator.audit(&by, "reload", "settings", outcome);
    let content = match result {
        Ok(report) => html! {
            (page_html::notice(&Notice::done("The settings of this gateway were read again.")))
            pre { (report) }
        },
        Err(error) => html! {
            (page_html::notice(&Notice::problem(sentence(&error.to_string()))))
            (self::form(context))
        },
    };
    Ok(layout::page(context, TITLE, Some(RELOAD), content))
}

fn form(context: &PageContext) -> Markup {
    let what = "This gateway reads its settings again, as at its start. Servers, rights, keys, hooks, limits and the log \
                level change while it runs; what needs a restart is named. If anything is refused, nothing changes.";
    html! {
        p { (what) }
        (act(context, "/ui/reload", "Reload", "Other gateways are not reloaded by this.", html! {}))
    }
}
