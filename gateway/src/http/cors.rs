//! Cross-origin requests (WHATWG Fetch, CORS): what a browser needs before a page of an allowed origin may call the
//! gateway and read the reply.
//!
//! Invariant: only an origin that the guard has allowed is named, never `*`, and browser credentials are not requested.
//! A page of another origin gets 403 before this code runs.

use axum::response::Response;
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD, ORIGIN,
    VARY,
};
use http::{HeaderMap, HeaderValue, Method, StatusCode};

use super::reply::to_http;
use super::stranger_rate;
use mooring_protocol::Reply;

/// The methods of all paths.
const METHODS: HeaderValue = HeaderValue::from_static("GET, POST, PUT, DELETE");
/// The non-safelisted request headers that MCP clients send.
const REQUEST_HEADERS: HeaderValue = HeaderValue::from_static(
    "accept, authorization, content-type, dpop, last-event-id, mcp-method, mcp-name, mcp-protocol-version, mcp-session-id, \
     mooring-client, mooring-session, traceparent, tracestate, x-api-key, x-mcp-session-id",
);
/// The reply headers that MCP clients read and browsers hide by default.
const REPLY_HEADERS: HeaderValue = HeaderValue::from_static(
    "mcp-protocol-version, mcp-session-id, mooring-degraded, mooring-session, retry-after, www-authenticate, \
     x-mcp-session-id",
);
/// How long a browser may cache a preflight reply, in seconds. Chromium caps it at two hours.
const MAX_AGE_SECONDS: HeaderValue = HeaderValue::from_static("7200");

/// Whether this is a browser's preflight request.
pub(super) fn is_preflight(method: &Method, headers: &HeaderMap) -> bool {
    method == Method::OPTIONS
        && headers.contains_key(ORIGIN)
        && headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

/// The reply to a preflight request of an allowed origin.
pub(super) fn preflight() -> Response {
    let mut reply = to_http(Reply::empty(StatusCode::NO_CONTENT));
    let headers = reply.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, METHODS);
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, REQUEST_HEADERS);
    headers.insert(ACCESS_CONTROL_MAX_AGE, MAX_AGE_SECONDS);
    stranger_rate::public(reply)
}

/// Lets the page at `origin`, which is allowed, read the reply. `Vary` is set on replies without an origin too.
pub(super) fn allow_origin(reply: &mut Response, origin: Option<HeaderValue>) {
    let headers = reply.headers_mut();
    headers.append(VARY, HeaderValue::from_static("origin"));
    if let Some(origin) = origin {
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, REPLY_HEADERS);
    }
}
