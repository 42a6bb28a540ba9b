//! The host and origin guard: checks the Host and Origin headers of every request before its path is looked at.
//!
//! A web page can make a browser send requests to any address, and DNS rebinding can make the gateway appear to have
//! the page's own origin. The Host and Origin headers reveal both (MCP 2025-11-25, transports, security warning).

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, HOST, ORIGIN, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderName, HeaderValue, Uri};

use super::app::App;
use super::cors;
use super::reply::to_http;
use mooring_pipeline::answer;
use mooring_protocol::header::MOORING_DEGRADED;
use mooring_protocol::{ErrorBody, ErrorKind};
use mooring_settings::AllowedHosts;
use url::Url;

/// Checks Host and Origin, answers CORS preflights of allowed origins, and sets the headers that every reply has.
pub(super) async fn check(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    guard(&app, request, |request| next.run(request)).await
}

/// The same for what is not a layer of the router.
pub(super) async fn guard<F: Future<Output = Response>>(
    app: &App,
    request: Request,
    next: impl FnOnce(Request) -> F,
) -> Response {
    let mut reply = match host_of(request.headers(), request.uri()) {
        Err(reason) => refused(&ErrorBody::new(ErrorKind::InvalidRequest).detail(reason)),
        Ok(host) if !host.is_some_and(|host| app.listen.allowed_hosts.allows(host)) => {
            tracing::info!(
                host,
                "request refused: its Host is not in listen.allowed_hosts"
            );
            let error = ErrorBody::new(ErrorKind::HostMisdirected);
            refused(&error.detail("it is not in listen.allowed_hosts"))
        }
        Ok(_) if !is_origin_allowed(app, &request) => {
            let origin = request.headers().get(ORIGIN);
            let origin = origin.map(|origin| String::from_utf8_lossy(origin.as_bytes()));
            tracing::info!(
                origin = origin.as_deref(),
                "request refused: its Origin is not in listen.allowed_origins"
            );
            let error = ErrorBody::new(ErrorKind::OriginForbidden);
            refused(&error.detail("it is not in listen.allowed_origins"))
        }
        Ok(_) => {
            let origin = request.headers().get(ORIGIN).cloned();
            let mut reply = match cors::is_preflight(request.method(), request.headers()) {
                true => cors::preflight(),
                false => next(request).await,
            };
            cors::allow_origin(&mut reply, origin);
            reply
        }
    };
    let headers = reply.headers_mut();
    // A browser must not take text of a tool for a page or a script (WHATWG Fetch, 3.6).
    let nosniff = HeaderValue::from_static("nosniff");
    headers.insert(X_CONTENT_TYPE_OPTIONS, nosniff);
    // A reply is for its caller alone, even if a cache does not know how callers are identified (RFC 9111, 3.5).
    let no_store = HeaderValue::from_static("no-store");
    headers.entry(CACHE_CONTROL).or_insert(no_store);
    if app.core.session_router.store().is_degraded() {
        let degraded = HeaderValue::from_static("1");
        headers.insert(MOORING_DEGRADED, degraded);
    }
    reply
}

fn refused(error: &ErrorBody<'_>) -> Response {
    to_http(answer::error(error))
}

/// The one host of a request, from its Host header, its target (RFC 9112, 3.2.2) or its authority (RFC 9113, 8.3.1). A
/// request with two different hosts is refused: a proxy may have used the other one.
fn host_of<'a>(headers: &'a HeaderMap, target: &'a Uri) -> Result<Option<&'a str>, &'static str> {
    let mut named = headers.get_all(HOST).iter();
    let header = match (named.next(), named.next()) {
        (_, Some(_)) => return Err("there is more than one Host header"),
        (header, None) => header,
    };
    let header = match header.map(HeaderValue::to_str) {
        Some(Ok(host)) => Some(host),
        Some(Err(_)) => return Err("the Host header is not printable ASCII"),
        None => None,
    };
    let authority = target.authority().map(http::uri::Authority::as_str);
    match (header, authority) {
        (Some(header), Some(authority)) if !header.eq_ignore_ascii_case(authority) => {
            Err("the Host header and the request's target name different hosts")
        }
        _ => Ok(authority.or(header)),
    }
}

fn is_origin_allowed(app: &App, request: &Request) -> bool {
    request.headers().get_all(ORIGIN).iter().all(|origin| {
        let is_listed = |origin: &str| app.listen.allowed_origins.allows(origin);
        origin.to_str().is_ok_and(is_listed)
            || is_own_origin(app, request.headers(), request.uri(), origin)
    })
}

/// Whether the request is from no page, or from one of the gateway's own, whatever `listen.allowed_origins` lists for MCP
/// clients in browsers.
pub(super) fn is_from_own_page(app: &App, headers: &HeaderMap, target: &Uri) -> bool {
    let mut origins = headers.get_all(ORIGIN).iter();
    origins.all(|origin| is_own_origin(app, headers, target, origin))
}

/// Whether this is the origin of the gateway's own pages: that of `listen.public_url`, or the host that the request is for.
/// Where every host is allowed, a page can have given that name to this machine, so it proves nothing. Either scheme is the
/// gateway's own: a proxy in front may have ended TLS.
fn is_own_origin(app: &App, headers: &HeaderMap, target: &Uri, origin: &HeaderValue) -> bool {
    let Ok(origin) = origin.to_str() else {
        return false;
    };
    let public_url = app.listen.public_url.as_ref();
    let public_url = public_url.and_then(|url| Url::parse(url).ok());
    if public_url.is_some_and(|url| url.origin().ascii_serialization() == origin) {
        return true;
    }
    let is_checked = !matches!(app.listen.allowed_hosts, AllowedHosts::Any);
    let host = host_of(headers, target).ok().flatten();
    let named = (origin.strip_prefix("http://")).or_else(|| origin.strip_prefix("https://"));
    is_checked
        && named
            .zip(host)
            .is_some_and(|(named, host)| named.eq_ignore_ascii_case(host))
}

/// Whether the client accepts JSON and events in replies to a POST, as the protocol requires. Most write what the
/// protocol has, and nothing of it has to be parsed.
pub(super) fn accepts_both(headers: &HeaderMap) -> bool {
    let is_plain = |accept: &HeaderValue| accept == "application/json, text/event-stream";
    headers.get(ACCEPT).is_some_and(is_plain)
        || accepts(headers, "application", "json") && accepts_events(headers)
}

/// Whether the client accepts events in the reply to a GET.
pub(super) fn accepts_events(headers: &HeaderMap) -> bool {
    accepts(headers, "text", "event-stream")
}

/// Whether the Content-Type is JSON.
pub(super) fn is_json(headers: &HeaderMap) -> bool {
    let is_plain = |content_type: &HeaderValue| content_type == "application/json";
    headers.get(CONTENT_TYPE).is_some_and(is_plain)
        || media_types(headers, &CONTENT_TYPE).any(|(kind, subtype)| {
            kind.eq_ignore_ascii_case("application") && subtype.eq_ignore_ascii_case("json")
        })
}

fn accepts(headers: &HeaderMap, kind: &str, subtype: &str) -> bool {
    media_types(headers, &ACCEPT).any(|(accepted_kind, accepted_subtype)| {
        (accepted_kind == "*" || accepted_kind.eq_ignore_ascii_case(kind))
            && (accepted_subtype == "*" || accepted_subtype.eq_ignore_ascii_case(subtype))
    })
}

/// The media ranges of a header (RFC 9110, 12.5.1). Weights are ignored, since every required type only has to be
/// acceptable.
fn media_types<'a>(
    headers: &'a HeaderMap,
    name: &'a HeaderName,
) -> impl Iterator<Item = (&'a str, &'a str)> {
    headers
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|range| range.split(';').next()?.trim().split_once('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_has_to_accept_both_forms_of_a_reply() {
        for (accept, both, events) in [
            ("application/json, text/event-stream", true, true),
            ("text/event-stream, application/json;q=0.9", true, true),
            ("*/*", true, true),
            ("application/*, text/*", true, true),
            ("application/json", false, false),
            ("text/event-stream", false, true),
            ("application/jsonx, text/event-stream", false, true),
            ("", false, false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, HeaderValue::from_static(accept));
            assert_eq!(accepts_both(&headers), both, "{accept}");
            assert_eq!(accepts_events(&headers), events, "{accept}");
        }
        assert!(!accepts_both(&HeaderMap::new()));
    }

    #[test]
    fn a_content_type_may_have_parameters() {
        for (content_type, json) in [
            ("application/json", true),
            ("application/json; charset=utf-8", true),
            ("text/plain", false),
            ("application/json-rpc", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
            assert_eq!(is_json(&headers), json, "{content_type}");
        }
    }
}
