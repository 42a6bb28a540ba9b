//! Acts: what one would do, its confirmation, and what it has done.
//!
//! An act in steps is confirmed once; its page sends the next step by itself, or when somebody presses the button, until
//! nothing is left or somebody stops it.

use std::collections::BTreeMap;

use axum::extract::Path;
use axum::response::Response;
use http::StatusCode;
use maud::{Markup, html};

use super::parts::sentence;
use super::sessions::session_table;
use crate::http::rest::Problem;
use crate::http::ui::context::{PageContext, PostedForm};
use crate::http::ui::html::{self as page_html, Notice, token_field};
use crate::http::ui::layout;
use crate::http::ui::navigation::NavigationItem;
use crate::http::ui::navigation::{FLEET, SERVERS, SESSIONS};
use mooring_admin::sessions::SessionSearch;
use mooring_admin::{
    ActPreview, ActProgress, DrainChange, OperatorError, ParkChange, ParkRequest, SessionMove,
};

/// An act with what it is about.
struct Act {
    kind: ActKind,
    /// The parameters that name it, which its form repeats.
    named: BTreeMap<String, String>,
}

/// The acts, by the last part of their paths.
#[derive(Clone, Copy, PartialEq, Eq, strum::EnumString, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
enum ActKind {
    End,
    EndMatching,
    Move,
    Drain,
    Undrain,
    Park,
    Unpark,
}

impl ActKind {
    const fn label(self) -> &'static str {
        match self {
            Self::End => "End the session",
            Self::EndMatching => "End these sessions",
            Self::Move => "Move the session",
            Self::Drain => "Drain the gateway",
            Self::Undrain => "Undrain the gateway",
            Self::Park => "Park",
            Self::Unpark => "Unpark",
        }
    }

    const fn page(self) -> NavigationItem {
        match self {
            Self::End | Self::EndMatching | Self::Move => SESSIONS,
            Self::Drain | Self::Undrain => FLEET,
            Self::Park | Self::Unpark => SERVERS,
        }
    }

    /// The parameters that name what it is about.
    const fn parameters(self) -> &'static [&'static str] {
        match self {
            Self::End => &["session"],
            Self::EndMatching => &["text", "state", "kind"],
            Self::Move => &["session", "server"],
            Self::Drain | Self::Undrain => &["worker"],
            Self::Park | Self::Unpark => &["server", "instance"],
        }
    }

    /// Whether others see why.
    const fn takes_note(self) -> bool {
        matches!(self, Self::Drain | Self::Park)
    }

    const fn is_dangerous(self) -> bool {
        matches!(self, Self::End | Self::EndMatching)
    }
}

impl Act {
    fn read(
        kind: &str,
        mut parameter: impl FnMut(&str) -> Option<String>,
    ) -> Result<Self, Response> {
        let kind: ActKind = kind
            .parse()
            .map_err(|_| page_html::empty(StatusCode::NOT_FOUND))?;
        let named = kind.parameters().iter();
        let named = named.filter_map(|name| Some(((*name).to_owned(), parameter(name)?)));
        Ok(Self {
            kind,
            named: named.collect(),
        })
    }

    fn text(&self, name: &str) -> &str {
        self.named.get(name).map_or("", String::as_str)
    }

    fn search(&self) -> SessionSearch {
        let field = |name: &str| self.named.get(name).cloned();
        SessionSearch {
            text: field("text"),
            state: field("state"),
            kind: field("kind"),
            ..SessionSearch::default()
        }
    }

    fn park_request<'a>(&'a self, change: ParkChange<'a>) -> ParkRequest<'a> {
        ParkRequest {
            server: self.text("server"),
            instance: self.named.get("instance").map(String::as_str),
            change,
        }
    }

    /// The session goes to another instance once no call of it runs.
    fn session_move(&self) -> SessionMove<'_> {
        SessionMove {
            session: self.text("session"),
            server: self.named.get("server").map(String::as_str),
            to: None,
            is_forced: false,
        }
    }

    async fn preview(&self, context: &PageContext) -> Result<ActPreview, Problem> {
        let (operator, by) = (context.operator(), context.operator_identity());
        let (session, worker) = (self.text("session"), self.text("worker"));
        Ok(match self.kind {
            ActKind::End => operator.preview_end(&by, session).await?,
            ActKind::EndMatching => {
                let search = self.search();
                refuse_everything(&search)?;
                operator.preview_end_all(&by, &search.filter()?).await?
            }
            ActKind::Move => operator.preview_move(&by, self.session_move()).await?,
            ActKind::Drain => {
                operator
                    .preview_drain(&by, worker, DrainChange::Drain(""))
                    .await?
            }
            ActKind::Undrain => {
                operator
                    .preview_drain(&by, worker, DrainChange::Undrain)
                    .await?
            }
            ActKind::Park => {
                operator
                    .preview_park(&by, self.park_request(ParkChange::Park("")))
                    .await?
            }
            ActKind::Unpark => {
                operator
                    .preview_park(&by, self.park_request(ParkChange::Unpark))
                    .await?
            }
        })
    }

    async fn perform(&self, context: &PageContext, note: &str) -> Result<ActProgress, Problem> {
        let (operator, by) = (context.operator(), context.operator_identity());
        let (session, worker) = (self.text("session"), self.text("worker"));
        let progress: Result<ActProgress, OperatorError> = match self.kind {
            ActKind::End => operator.end_session(&by, session).await,
            ActKind::EndMatching => {
                let search = self.search();
                refuse_everything(&search)?;
                operator.end_sessions(&by, &search).await
            }
            ActKind::Move => operator.move_session(&by, self.session_move()).await,
            ActKind::Drain => operator.drain(&by, worker, DrainChange::Drain(note)).await,
            ActKind::Undrain => operator.drain(&by, worker, DrainChange::Undrain).await,
            ActKind::Park => {
                operator
                    .park(&by, self.park_request(ParkChange::Park(note)))
                    .await
            }
            ActKind::Unpark => {
                operator
                    .park(&by, self.park_request(ParkChange::Unpark))
                    .await
            }
        };
        Ok(progress?)
    }

    /// The form that performs it.
    fn form(&self, context: &PageContext, fields: &Markup, button: &Markup) -> Markup {
        html! {
            form.stacked method="post" action=(format!("/ui/acts/{}", <&'static str>::from(self.kind))) {
                (token_field(&context.form_token()))
                @for (name, value) in &self.named { input type="hidden" name=(name) value=(value); }
                (fields)
                (button)
            }
        }
    }
}

/// An empty search would end every session, which nobody means.
fn refuse_everything(search: &SessionSearch) -> Result<(), Problem> {
    use crate::http::rest::Code;
    match search.filter()?.is_too_wide_to_end() {
        true => Err(Problem::new(
            Code::InvalidQuery,
            "the search selects every session, or others than active ones: ending those is not meant",
        )),
        false => Ok(()),
    }
}

/// What the act would do.
pub(super) async fn preview(
    context: PageContext,
    Path(kind): Path<String>,
) -> Result<Response, Response> {
    let mut query = context.query();
    let act = Act::read(&kind, |name| query.remove(name))?;
    let (label, page) = (act.kind.label(), act.kind.page());
    Ok(match act.preview(&context).await {
        Ok(preview) => {
            let content = preview_content(&context, &act, &preview);
            layout::page(&context, label, Some(page), content)
        }
        Err(problem) => refused(&context, &act, &problem),
    })
}

fn preview_content(context: &PageContext, act: &Act, preview: &ActPreview) -> Markup {
    let note = html! {
        @if act.kind.takes_note() {
            label for="note" { "Why (others see it)" }
            input #note type="text" name="note" maxlength="200";
        }
    };
    let class = act.kind.is_dangerous().then_some("danger");
    let button = html! {
        div.acts {
            button class=[class] type="submit" { (act.kind.label()) }
            a href=(act.kind.page().path) { "Do nothing" }
        }
    };
    html! {
        dl.facts {
            @for (name, value) in &act.named { div { dt { (name) } dd { code { (value) } } } }
            div { dt { "Sessions concerned" } dd {
                (preview.sessions) @if !preview.complete { " or more" }
            } }
        }
        p { "If you confirm: " (sentence(&preview.effect)) }
        (act.form(context, &note, &button))
        @if !preview.sample.is_empty() {
            h2 { "Some of them" }
            (session_table(&preview.sample))
        }
    }
}

/// Performs the act, or its next step.
pub(super) async fn perform(
    Path(kind): Path<String>,
    form: PostedForm,
) -> Result<Response, Response> {
    let context = &form.context;
    let act = Act::read(&kind, |name| {
        Some(form.text(name).to_owned()).filter(|text| !text.is_empty())
    })?;
    let before: u64 = form.text("changed").parse().unwrap_or_default();
    Ok(match act.perform(context, form.text("note")).await {
        Ok(progress) => {
            let changed = before.saturating_add(progress.changed);
            let content = result_content(context, &act, &progress, changed);
            layout::page(context, act.kind.label(), Some(act.kind.page()), content)
        }
        Err(problem) => refused(context, &act, &problem),
    })
}

fn result_content(
    context: &PageContext,
    act: &Act,
    progress: &ActProgress,
    changed: u64,
) -> Markup {
    let page = act.kind.page();
    let back = html! { p { a href=(page.path) { "Back to " (page.label) } } };
    if progress.is_left {
        let fields = html! { input type="hidden" name="changed" value=(changed); };
        let button = html! {
            div.acts {
                button type="submit" { "Continue" }
                a href=(page.path) data-stops { "Stop here" }
            }
        };
        return html! {
            p role="status" { (changed) " done, and more are left." }
            progress aria-label="Under way" {}
            div data-continues { (act.form(context, &fields, &button)) }
        };
    }
    let text = match (changed, act.kind) {
        (0, _) => "Nothing had to be changed.".to_owned(),
        (count, ActKind::EndMatching) => format!("{count} sessions have ended."),
        (_, ActKind::End) => "The session has ended.".to_owned(),
        (_, ActKind::Move) => match &progress.detail {
            Some(detail) => sentence(detail),
            None => "The session was moved.".to_owned(),
        },
        (_, ActKind::Drain) => {
            "The gateway drains. The fleet's page shows what is left.".to_owned()
        }
        (_, ActKind::Undrain) => "The gateway takes new work again.".to_owned(),
        (_, ActKind::Park) => "It is parked: it gets nothing new.".to_owned(),
        (_, ActKind::Unpark) => "It gets new sessions again.".to_owned(),
    };
    html! { (page_html::notice(&Notice::done(text))) (back) }
}

fn refused(context: &PageContext, act: &Act, problem: &Problem) -> Response {
    let notice = page_html::notice(&Notice::problem(sentence(problem.message())));
    let page = act.kind.page();
    layout::page_with_status(
        context,
        problem.status(),
        act.kind.label(),
        Some(page),
        notice,
    )
}
