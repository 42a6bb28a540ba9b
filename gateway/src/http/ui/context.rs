//! An operator who looks at the page: identified, within the rate of requests, and with a right to see something.
//!
//! Invariant: nothing of the gateway is read for a page before this succeeded.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Extension;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::response::Response;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use maud::html;
use url::form_urlencoded;

use super::headers::is_led_from_elsewhere;
use super::html::{self as page_html, Notice, TOKEN_FIELD};
use super::navigation::VIEWING;
use super::target::sign_in_path;
use crate::http::app::App;
use crate::http::caller::{CallerRefusal, RequestHead, RequestSender};
use crate::http::operator_page::{FormOwner, OperatorPage, SignIn};
use mooring_admin::{Operator, OperatorIdentity};
use mooring_identity::Identity;
use mooring_metrics as metrics;
use mooring_pipeline::RequestEntry;
use mooring_protocol::header::X_REQUEST_ID;
use mooring_settings::Right;

/// Set by htmx.
const HX_REQUEST: HeaderName = HeaderName::from_static("hx-request");
const HX_REDIRECT: HeaderName = HeaderName::from_static("hx-redirect");

/// An operator's request.
#[derive(Debug)]
pub(super) struct PageContext {
    pub(super) app: Arc<App>,
    pub(super) identity: Arc<Identity>,
    /// None where the request itself has the identity.
    sign_in: Option<SignIn>,
    /// Path and query of the request.
    pub(super) target: String,
    /// The id of the request, in audit lines.
    request_id: Box<str>,
    query: String,
}

impl FromRequestParts<Arc<App>> for PageContext {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Response> {
        let page = page_of(app)?;
        let Extension(sender) = Extension::<Arc<RequestSender>>::from_request_parts(parts, app)
            .await
            .map_err(|_| internal())?;
        let (identity, sign_in) = match signed_in(app, page, &parts.headers) {
            Some((identity, sign_in)) => (identity, Some(sign_in)),
            None => (own_identity(app, page, &sender, parts).await?, None),
        };
        app.core.count_requests(&identity, 1).map_err(|wait| {
            metrics::requests_refused("listen.requests_per_user_per_minute");
            page_html::too_many(wait)
        })?;
        let usage = app.core.usages.of(&identity.principal);
        usage.charge_task().await;
        sender.admit();
        let context = Self {
            app: Arc::clone(app),
            identity,
            sign_in,
            target: parts
                .uri
                .path_and_query()
                .map_or("/ui", |target| target.as_str())
                .to_owned(),
            query: parts.uri.query().unwrap_or_default().to_owned(),
            request_id: request_id(&parts.headers),
        };
        match VIEWING.into_iter().any(|right| context.may(right)) {
            true => Ok(context),
            false => Err(context.forbidden("Your account has no right to see this page")),
        }
    }
}

fn request_id(headers: &HeaderMap) -> Box<str> {
    let id = RequestEntry::id_of(headers.get(X_REQUEST_ID));
    id.to_str().unwrap_or_default().into()
}

/// The identity of the page's cookie.
fn signed_in(
    app: &App,
    page: &OperatorPage,
    headers: &HeaderMap,
) -> Option<(Arc<Identity>, SignIn)> {
    let sign_in: SignIn = page.cookies.open(headers)?;
    let signed_in = sign_in.identity()?;
    let identity = match &sign_in.api_key {
        // Its teams and roles may have changed since, and it may have been revoked.
        Some(id) => app.authenticator.api_key_owner(id).ok()?,
        None => Arc::clone(&signed_in),
    };
    (identity.principal == signed_in.principal).then_some((identity, sign_in))
}

/// The identity that the request itself has.
async fn own_identity(
    app: &Arc<App>,
    page: &OperatorPage,
    sender: &RequestSender,
    parts: &Parts,
) -> Result<Arc<Identity>, Response> {
    let can_sign_in = app.authenticator.takes_bearers() || page.openid.is_some();
    let has_credential =
        parts.headers.contains_key(AUTHORIZATION) || parts.headers.contains_key("x-api-key");
    if app.authenticator.takes_bearers() && !has_credential {
        return Err(needs_sign_in(parts));
    }
    match app.identify(RequestHead::of(sender, parts)).await {
        Ok(identity) => Ok(identity),
        Err(_) if can_sign_in && !has_credential => Err(needs_sign_in(parts)),
        Err(CallerRefusal { error, .. }) => {
            let notice = Notice::problem(format!("You are not signed in: {error}"));
            Err(page_html::bare(error.status(), "Not signed in", &notice))
        }
    }
}

/// Leads an unknown person to the sign-in.
fn needs_sign_in(parts: &Parts) -> Response {
    let target = parts
        .uri
        .path_and_query()
        .map_or("/ui", |target| target.as_str());
    let is_get = parts.method == Method::GET;
    if parts.headers.contains_key(HX_REQUEST) {
        let mut reply = page_html::empty(StatusCode::UNAUTHORIZED);
        let path = HeaderValue::from_static("/ui/sign-in");
        reply.headers_mut().insert(HX_REDIRECT, path);
        return reply;
    }
    if is_get && is_led_from_elsewhere(&parts.headers) {
        // Opened once more from here, the request has the cookie.
        return page_html::open_again(target);
    }
    match is_get {
        true => page_html::see_other(&sign_in_path(target)),
        false => {
            let notice = Notice::problem("You are signed out. Sign in, and send the form again.");
            page_html::bare(StatusCode::UNAUTHORIZED, "Signed out", &notice)
        }
    }
}

impl PageContext {
    /// The page of the gateway.
    ///
    /// # Errors
    /// It is disabled.
    pub(super) fn page(&self) -> Result<&OperatorPage, Response> {
        page_of(&self.app)
    }

    /// The functions for operators.
    pub(super) fn operator(&self) -> Operator {
        self.app.operator()
    }

    /// Who they are for.
    pub(super) fn operator_identity(&self) -> OperatorIdentity {
        OperatorIdentity {
            identity: Arc::clone(&self.identity),
            request_id: self.request_id.clone(),
        }
    }

    /// Whether the operator has this right.
    pub(super) fn may(&self, right: Right) -> bool {
        self.app.core.policy.has_right(&self.identity, right)
    }

    /// Refuses an operator who has none of these rights.
    pub(super) fn require_one(&self, rights: &[Right]) -> Result<(), Response> {
        if rights.iter().any(|right| self.may(*right)) {
            return Ok(());
        }
        let names: Vec<&str> = rights.iter().map(|right| right.name()).collect();
        Err(self.forbidden(&format!(
            "This needs the right {}, or admin",
            names.join(" or ")
        )))
    }

    fn forbidden(&self, text: &str) -> Response {
        let user = self
            .app
            .core
            .request_log
            .user_digest(&self.identity.principal);
        tracing::info!(%user, path = self.target, "page refused: its user lacks the right");
        let content = html! {
            (page_html::notice(&Notice::problem(text)))
            @if self.is_signed_in() {
                form method="post" action="/ui/sign-out" {
                    (page_html::token_field(&self.form_token()))
                    button type="submit" { "Sign out" }
                }
            }
            p { a href="/ui" { "To the start page" } }
        };
        page_html::bare_page(StatusCode::FORBIDDEN, "Not allowed", content)
    }

    /// Whether the person can sign out.
    pub(super) const fn is_signed_in(&self) -> bool {
        self.sign_in.is_some()
    }

    /// A new token for the forms of a page.
    pub(super) fn form_token(&self) -> String {
        let page = self.app.page.as_ref();
        page.map(|page| page.form_tokens.issue(self.form_owner()))
            .unwrap_or_default()
    }

    fn form_owner(&self) -> FormOwner<'_> {
        FormOwner {
            principal: self.identity.principal.as_str(),
            sign_in: self.sign_in.as_ref().map_or("", |sign_in| &sign_in.id),
        }
    }

    /// The parameters of the query; of several with one name the first. Empty ones are those of form fields that nobody has
    /// filled in, and left out.
    pub(super) fn query(&self) -> BTreeMap<String, String> {
        parameters(self.query.as_bytes())
    }

    /// The query for a function of the REST interface: these parameters, as far as the request has them.
    pub(super) fn query_of(&self, names: &[&str]) -> String {
        let mut text = form_urlencoded::Serializer::new(String::new());
        for (name, value) in self.query() {
            if names.contains(&&*name) {
                text.append_pair(&name, &value);
            }
        }
        text.finish()
    }
}

/// A form that an operator has sent from the page.
#[derive(Debug)]
pub(super) struct PostedForm {
    pub(super) context: PageContext,
    fields: BTreeMap<String, String>,
}

impl FromRequest<Arc<App>> for PostedForm {
    type Rejection = Response;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, Response> {
        let (mut parts, body) = request.into_parts();
        let context = PageContext::from_request_parts(&mut parts, app).await?;
        let usage = app.core.usages.of(&context.identity.principal);
        let read = app.request_bodies.read(body, usage.messages()).await;
        let body = read.map_err(|error| {
            let notice = Notice::problem(format!("The form could not be read: {error}"));
            page_html::bare(StatusCode::BAD_REQUEST, "Form not read", &notice)
        })?;
        let fields = form_fields(&parts.headers, &body)?;
        let token = fields.get(TOKEN_FIELD).map_or("", String::as_str);
        if !context
            .page()?
            .form_tokens
            .verify(token, context.form_owner())
        {
            return Err(outdated_form());
        }
        Ok(Self { context, fields })
    }
}

impl PostedForm {
    /// The text of a field; empty if it is missing.
    pub(super) fn text(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }
}

/// The fields of a form.
pub(super) fn form_fields(
    headers: &HeaderMap,
    body: &[u8],
) -> Result<BTreeMap<String, String>, Response> {
    let content_type = headers
        .get(CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok());
    let kind = content_type.and_then(|kind| kind.split(';').next());
    if kind.map(str::trim) != Some("application/x-www-form-urlencoded") {
        let notice = Notice::problem("Only forms of the page are accepted here.");
        return Err(page_html::bare(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "No form",
            &notice,
        ));
    }
    Ok(parameters(body))
}

fn parameters(text: &[u8]) -> BTreeMap<String, String> {
    let mut parameters = BTreeMap::new();
    for (name, value) in form_urlencoded::parse(text) {
        if !value.is_empty() {
            parameters
                .entry(name.into_owned())
                .or_insert_with(|| value.into_owned());
        }
    }
    parameters
}

/// The reply to a form without a valid token.
pub(super) fn outdated_form() -> Response {
    let text = "Nothing was done: this form is from an outdated page, or not from this page. Reload the page, and try again.";
    page_html::bare(
        StatusCode::FORBIDDEN,
        "Outdated form",
        &Notice::problem(text),
    )
}

fn page_of(app: &App) -> Result<&OperatorPage, Response> {
    app.page
        .as_deref()
        .ok_or_else(|| page_html::empty(StatusCode::NOT_FOUND))
}

pub(super) fn internal() -> Response {
    let notice = Notice::problem("The gateway could not show this page. Its log has the reason.");
    page_html::bare(StatusCode::INTERNAL_SERVER_ERROR, "Internal error", &notice)
}
