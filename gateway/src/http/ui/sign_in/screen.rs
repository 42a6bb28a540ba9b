//! The sign-in page, and signing out.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::{Request, State};
use axum::response::Response;
use http::header::{RETRY_AFTER, SET_COOKIE};
use http::{HeaderValue, StatusCode};
use maud::html;
use url::form_urlencoded;

use super::cookie::{self, SealedText, SignIn};
use crate::http::app::App;
use crate::http::caller::{RequestHead, RequestSender};
use crate::http::stranger_rate;
use crate::http::ui::context::{PostedForm, TOKEN_FIELD};
use crate::http::ui::csrf::FormOwner;
use crate::http::ui::layout::{self, Notice};
use crate::http::ui::operator_page::OperatorPage;
use mooring_pipeline::answer::seconds_of;

/// Whose the form of the sign-in page is.
pub(super) const NOBODY: FormOwner<'static> = FormOwner {
    principal: "",
    sign_in: "",
};
/// Where a person goes who was going nowhere.
const START: &str = "/ui";
/// Longest path that is kept over a sign-in.
const TARGET_BYTES_MAX: usize = 512;

/// The path of the sign-in page for a person who was going to this one.
pub(in crate::http::ui) fn sign_in_path(target: &str) -> String {
    match target_after(Some(target)) {
        START => "/ui/sign-in".to_owned(),
        target => {
            let to: String = form_urlencoded::byte_serialize(target.as_bytes()).collect();
            format!("/ui/sign-in?to={to}")
        }
    }
}

/// Where a person goes after the sign-in: a path of the page, or its start. No other site can be named.
pub(super) fn target_after(target: Option<&str>) -> &str {
    let is_of_page = |target: &&str| {
        let is_below = target
            .strip_prefix(START)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?']));
        is_below
            && target.len() <= TARGET_BYTES_MAX
            && !target.starts_with("/ui/sign-")
            && target
                .bytes()
                .all(|byte| byte.is_ascii_graphic() && byte != b'\\')
    };
    target.filter(is_of_page).unwrap_or(START)
}

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
        return layout::empty(StatusCode::NOT_FOUND);
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
        @if let Some(problem) = problem { (layout::notice(problem)) }
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
    layout::bare_page(status, "Sign in", content)
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
    let Some(cookie) = page.cookies.set(sign_in, is_secure(app, head)) else {
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
    let mut reply = layout::open_again(target_after(Some(to)));
    reply.headers_mut().append(SET_COOKIE, cookie);
    reply
}

/// Whether this browser reaches the gateway over TLS.
pub(super) fn is_secure(app: &App, head: RequestHead<'_>) -> bool {
    app.base_url(head)
        .is_some_and(|url| url.starts_with("https:"))
}

/// Signs out: the browser forgets the cookie.
pub(super) async fn sign_out(
    State(app): State<Arc<App>>,
    Extension(sender): Extension<Arc<RequestSender>>,
    request: Request,
) -> Response {
    use axum::extract::FromRequest as _;
    let (head, body) = request.into_parts();
    let is_secure = is_secure(&app, RequestHead::of(&sender, &head));
    let form = PostedForm::from_request(Request::from_parts(head, body), &app).await;
    if let Err(refusal) = form {
        return refusal;
    }
    let mut reply = layout::see_other("/ui/sign-in");
    let deletion = cookie::deletion::<SignIn>(is_secure);
    reply
        .headers_mut()
        .extend(deletion.map(|value| (SET_COOKIE, value)));
    reply
}

/// The reply to a person with too many requests.
pub(in crate::http::ui) fn too_many(wait: Duration) -> Response {
    let seconds = seconds_of(wait);
    let text =
        format!("You have sent too many requests within a minute. Try again in {seconds} s.");
    let mut reply = layout::bare(
        StatusCode::TOO_MANY_REQUESTS,
        "Too many requests",
        &Notice::problem(text),
    );
    reply
        .headers_mut()
        .insert(RETRY_AFTER, HeaderValue::from(seconds));
    reply
}

/// Removes the cookie of a sign-in that is completed or given up.
pub(super) fn forget<T: SealedText>(reply: &mut Response, is_secure: bool) {
    if let Some(value) = cookie::deletion::<T>(is_secure) {
        reply.headers_mut().append(SET_COOKIE, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sign_in_leads_to_the_page_and_nowhere_else() {
        for target in ["/ui", "/ui/sessions?user=a%40b", "/ui?x"] {
            assert_eq!(target_after(Some(target)), target);
        }
        for target in [
            "//evil.example",
            "https://evil.example/ui",
            "/uix",
            "/ui\\@evil",
            "/ui/ x",
            "/ui/sign-in",
            "/mcp",
            "",
        ] {
            assert_eq!(target_after(Some(target)), "/ui", "{target}");
        }
        assert_eq!(
            target_after(Some(&format!("/ui/{}", "x".repeat(512)))),
            "/ui"
        );
        assert_eq!(
            sign_in_path("/ui/runs?a=1&b"),
            "/ui/sign-in?to=%2Fui%2Fruns%3Fa%3D1%26b"
        );
    }
}
