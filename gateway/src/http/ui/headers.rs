//! What a browser is told about every reply of the page, and what it has to have told of a request.
//!
//! Invariant: nothing runs in the page but its own files, no other site can show the page in a frame, and no other origin
//! gets a reply that is more than a refusal, whatever `listen.allowed_origins` lists for MCP clients.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_FRAME_OPTIONS};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};

use crate::http::app::App;
use crate::http::host_origin_guard;

/// What a page may load, run and be shown in.
pub(super) const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
     img-src 'self' data:; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";
/// Where a browser says that the request comes from (Fetch Metadata).
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const FETCH_DESTINATION: HeaderName = HeaderName::from_static("sec-fetch-dest");
const FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");

const HEADERS: [(HeaderName, HeaderValue); 6] = [
    (CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
    // A page's address names sessions and users. To the gateway itself it is sent: without it, a form has no origin.
    (REFERRER_POLICY, HeaderValue::from_static("same-origin")),
    (X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        HeaderValue::from_static("same-origin"),
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        HeaderValue::from_static("same-origin"),
    ),
    (
        HeaderName::from_static("permissions-policy"),
        HeaderValue::from_static("camera=(), geolocation=(), microphone=(), payment=(), usb=()"),
    ),
];

/// Refuses requests of other origins, and sets the headers of every reply.
pub(super) async fn protect(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let mut reply = match is_own(&app, &request) {
        true => next.run(request).await,
        false => {
            tracing::info!("request to the operators' page refused: it is from another origin");
            refusal()
        }
    };
    let headers = reply.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, value);
    }
    reply
}

/// Whether the request is from the page itself, or a person opens it: from the address bar, a bookmark or a link.
fn is_own(app: &App, request: &Request) -> bool {
    let headers = request.headers();
    let is_from_page = host_origin_guard::is_from_own_page(app, headers, request.uri());
    is_from_page && (is_same_origin(headers) || is_opened(request.method(), headers))
}

fn is_same_origin(headers: &HeaderMap) -> bool {
    // A client that is no browser says nothing.
    let site = headers.get(FETCH_SITE);
    site.is_none_or(|site| site == "same-origin" || site == "none")
}

fn is_opened(method: &Method, headers: &HeaderMap) -> bool {
    let mode = headers.get(FETCH_MODE);
    // A frame of another site's page is no person who opens it.
    let destination = headers.get(FETCH_DESTINATION);
    method == Method::GET
        && mode.is_some_and(|mode| mode == "navigate")
        && destination.is_none_or(|destination| destination == "document")
}

/// Whether a page of another site led to this one: the browser has then left out the cookie of the sign-in.
pub(super) fn is_led_from_elsewhere(headers: &HeaderMap) -> bool {
    headers.get(FETCH_SITE).is_some() && !is_same_origin(headers)
}

fn refusal() -> Response {
    let mut reply = Response::new("requests of other origins are refused\n".into());
    *reply.status_mut() = StatusCode::FORBIDDEN;
    let text = HeaderValue::from_static("text/plain; charset=utf-8");
    reply.headers_mut().insert(CONTENT_TYPE, text);
    reply
}
