//! Signing in with an account at the OpenID provider: to the provider, and back with a code.
//!
//! Invariant: a code is used only by the browser whose sign-in it belongs to: the state in the address is that in the
//! browser's cookie.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::response::Response;
use http::header::SET_COOKIE;
use http::request::Parts;
use http::{HeaderMap, StatusCode};
use url::form_urlencoded;

use super::screen::{forget, sign_in_page, signed_in};
use crate::http::app::App;
use crate::http::caller::{RequestHead, RequestSender};
use crate::http::operator_page::{BegunSignIn, FLOW_SECONDS, OperatorPage, SignIn};
use crate::http::ui::html::{self, Notice};
use crate::http::ui::target::target_after;
use mooring_identity::{OpenIdClient, now};
use mooring_upstream::with_causes;

/// Sends the browser to the provider.
pub(super) async fn begin(
    State(app): State<Arc<App>>,
    Extension(sender): Extension<Arc<RequestSender>>,
    request: Request,
) -> Response {
    let (head, _) = request.into_parts();
    let head_of = RequestHead::of(&sender, &head);
    let Some((page, openid, redirect_uri)) = parts_of(&app, head_of) else {
        return html::empty(StatusCode::NOT_FOUND);
    };
    let query = query_of(&head);
    let to = target_after(query.get("to").map(String::as_str)).to_owned();
    let (url, flow) = match openid.begin(&redirect_uri).await {
        Ok(begun) => begun,
        Err(error) => return refused(&app, &error, &to),
    };
    let begun = BegunSignIn {
        flow,
        to,
        until: now() + FLOW_SECONDS,
    };
    let mut reply = html::see_other(url.as_str());
    let cookie = page.cookies.set(&begun, app.is_secure(head_of));
    reply
        .headers_mut()
        .extend(cookie.map(|value| (SET_COOKIE, value)));
    reply
}

/// The provider has led the browser back.
pub(super) async fn complete(
    State(app): State<Arc<App>>,
    Extension(sender): Extension<Arc<RequestSender>>,
    request: Request,
) -> Response {
    let (head, _) = request.into_parts();
    let head_of = RequestHead::of(&sender, &head);
    let Some((page, openid, redirect_uri)) = parts_of(&app, head_of) else {
        return html::empty(StatusCode::NOT_FOUND);
    };
    let query = query_of(&head);
    let mut reply = match begun_for(page, openid, &head.headers, &query) {
        Err(text) => {
            let notice = Notice::problem(format!("You are not signed in: {text}"));
            sign_in_page(&app, StatusCode::BAD_REQUEST, None, Some(&notice))
        }
        Ok((begun, code)) => match openid.complete(&begun.flow, code, &redirect_uri).await {
            Err(error) => refused(&app, &error, &begun.to),
            Ok(identity) => {
                let until = now().saturating_add(page.sign_in_lifetime.as_secs());
                let sign_in = SignIn::new(&identity, None, until);
                let user = app.core.request_log.user_digest(&identity.principal);
                tracing::info!(%user, "a person has signed in to the operators' page at the provider");
                signed_in(&app, page, head_of, &sign_in, &begun.to)
            }
        },
    };
    forget::<BegunSignIn>(&mut reply, app.is_secure(head_of));
    reply
}

/// The sign-in that this browser has begun, and the provider's code for it.
fn begun_for<'a>(
    page: &OperatorPage,
    openid: &OpenIdClient,
    headers: &HeaderMap,
    query: &'a BTreeMap<String, String>,
) -> Result<(BegunSignIn, &'a str), &'static str> {
    let begun: BegunSignIn = page
        .cookies
        .open(headers)
        .ok_or("this sign-in took too long, or was begun in another browser; try again")?;
    let parameter = |name| query.get(name).map(String::as_str);
    if parameter("state") != Some(&*begun.flow.state) {
        return Err("the answer of the provider is for another sign-in; try again");
    }
    // RFC 9207: the answer may say whose it is.
    if parameter("iss").is_some_and(|issuer| issuer != openid.issuer()) {
        return Err("the answer is from another provider");
    }
    if parameter("error").is_some() {
        return Err("the provider has refused it");
    }
    let code = parameter("code").ok_or("the answer of the provider has no code")?;
    Ok((begun, code))
}

/// The page, the provider, and where it leads browsers back to.
fn parts_of<'a>(
    app: &'a App,
    head: RequestHead<'_>,
) -> Option<(&'a OperatorPage, &'a OpenIdClient, String)> {
    let page = app.page.as_deref()?;
    let openid = page.openid.as_ref()?;
    let base = app.base_url(head)?;
    Some((page, openid, format!("{base}/ui/sign-in/callback")))
}

fn query_of(head: &Parts) -> BTreeMap<String, String> {
    let query = head.uri.query().unwrap_or_default();
    form_urlencoded::parse(query.as_bytes())
        .into_owned()
        .collect()
}

fn refused(app: &App, error: &mooring_identity::OpenIdError, to: &str) -> Response {
    let cause = with_causes(error);
    tracing::warn!(%cause, "a sign-in at the OpenID provider failed");
    let text = format!("You are not signed in: {error}. The gateway's log has the cause.");
    sign_in_page(
        app,
        StatusCode::BAD_GATEWAY,
        Some(to),
        Some(&Notice::problem(text)),
    )
}
