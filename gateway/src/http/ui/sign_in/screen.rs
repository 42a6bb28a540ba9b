//! The sign-in page, and signing out.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::response::Response;
use http::StatusCode;
use http::header::SET_COOKIE;
use maud::html;
use url::form_urlencoded;

use crate::http::app::App;
use crate::http::caller::{RequestHead, RequestSender};
use crate::http::operator_page::{FormOwner, OperatorPage, SealedText, SignIn, deletion};
use crate::http::stranger_rate;
use crate::http::ui::context::PostedForm;
use crate::http::ui::html::{self as page_html, Notice, TOKEN_FIELD};
use crate::http::ui::target::target_after;

/// Whose the form of the sign-in page is.
pub(super) const NOBODY: FormOwner<'static> = FormOwner {
    principal: "",
    sign_in: "",
};
/// The sign-in page.
pub(super) async fn show(State(app): State<Arc<App>>, request: Request) -> Response {
    let query = request.uri().query().unwrap_or_default();
    let to = form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "to");
    let to = to.map(|(_, value)| value.into_owned());
    stranger_rate::public(sign_in_page(&app, StatusCode::OK, to.as_deref(), None))
}

/// The sign-in page with what went wrong before.
pub(super) fn sign_in_page(
    app: &App,
    status: StatusCode,
    to: Option<&str>,
    problem: Option<&Notice>,
) -> Response {
    let Some(page) = &app.page else {
        return page_html::empty(StatusCode::NOT_FOUND);
    };
    let to = target_after(to);
    let credential = match (
        app.authenticator.takes_bearers(),
        app.authenticator.issuer(),
    ) {
        (false, _) => None,
        (true, None) => Some(("API key", "An API key, as mooring keys create prints it.")),
        (true, Some(_)) => Some((
            "Access token",
            "An access token for this gateway. The sign-in ends with the token.",
        )),
    };
    let content = html! {
        @if let Some(problem) = problem { (page_html::notice(problem)) }
        @if let Some(openid) = &page.openid {
            @let to: String = form_urlencoded::byte_serialize(to.as_bytes()).collect();
            // A link: where a form leads is restricted to this origin.
            p { a.button href=(format!("/ui/sign-in/provider?to={to}")) { "Sign in with " (host_of(openid.issuer())) } }
        }
        @if let Some((label, help)) = credential {
            form.stacked method="post" action="/ui/sign-in" {
                input type="hidden" name=(TOKEN_FIELD) value=(page.form_tokens.issue(NOBODY));
                input type="hidden" name="to" value=(to);
                label for="credential" { (label) }
                input #credential type="password" name="credential" required autocomplete="off"
                    spellcheck="false" aria-describedby="credential-help";
                p.help #credential-help { (help) }
                button type="submit" { "Sign in" }
            }
        }
        @if credential.is_none() && page.openid.is_none() {
            p { "This gateway knows people by their requests: " a href="/ui" { "open the page" } "." }
        }
    };
    page_html::bare_page(status, "Sign in", content)
}

fn host_of(issuer: &str) -> String {
    let url = url::Url::parse(issuer).ok();
    let host = url.as_ref().and_then(url::Url::host_str);
    host.unwrap_or(issuer).to_owned()
}

/// Sets the cookie, and leads to where the person was going.
pub(super) fn signed_in(
    app: &App,
    page: &OperatorPage,
    head: RequestHead<'_>,
    sign_in: &SignIn,
    to: &str,
) -> Response {
    let Some(cookie) = page.cookies.set(sign_in, app.is_secure(head)) else {
        let text = "You cannot be signed in: your account has more teams, roles and scopes than a cookie holds.";
        return sign_in_page(
            app,
            StatusCode::FORBIDDEN,
            Some(to),
            Some(&Notice::problem(text)),
        );
    };
    head.sender.admit();
    // Not a redirect: a provider's site has led here, so the browser would leave out the cookie once more.
    let mut reply = page_html::open_again(target_after(Some(to)));
    reply.headers_mut().append(SET_COOKIE, cookie);
    reply
}

/// Signs out: the browser forgets the cookie.
pub(super) async fn sign_out(
    State(app): State<Arc<App>>,
    Extension(sender): Extension<Arc<RequestSender>>,
    request: Request,
) -> Response {
    use axum::extract::FromRequest as _;
    let (head, body) = request.into_parts();
    let is_secure = app.is_secure(RequestHead::of(&sender, &head));
    let form = PostedForm::from_request(Request::from_parts(head, body), &app).await;
    if let Err(refusal) = form {
        return refusal;
    }
    let mut reply = page_html::see_other("/ui/sign-in");
    let deletion = deletion::<SignIn>(is_secure);
    reply
        .headers_mut()
        .extend(deletion.map(|value| (SET_COOKIE, value)));
    reply
}

/// Removes the cookie of a sign-in that is completed or given up.
pub(super) fn forget<T: SealedText>(reply: &mut Response, is_secure: bool) {
    if let Some(value) = deletion::<T>(is_secure) {
        reply.headers_mut().append(SET_COOKIE, value);
    }
}
