//! Liveness, readiness with the state of each part, and metrics.
//!
//! Invariant: names and state of servers and gateways are shown only to peers that the settings allow to see them.

use std::net::IpAddr;
use std::sync::Arc;

use axum::Extension;
use axum::extract::{RawQuery, State};
use axum::response::Response;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, StatusCode};
use mooring_session::names::ServerName;
use serde_json::json;

use super::app::App;
use super::caller::RequestSender;
use super::reply;
use mooring_code::server::CodeState;
use mooring_identity::KeysState;
use mooring_metrics as metrics;
use mooring_pipeline::answer;
use mooring_protocol::{ErrorBody, ErrorKind};
use mooring_settings::ProbeDetail;
use mooring_store::StoreMode;
use mooring_upstream::{self as upstream, Readiness, Server, ServerHealth};

/// The process is running.
pub(super) async fn healthz() -> Response {
    reply::json(StatusCode::OK, r#"{"status":"ok"}"#)
}

/// Whether the process can serve. 200 also while degraded, because a load balancer that loses the whole fleet at once
/// serves no requests; 503 only if nothing can be served.
pub(super) async fn readyz(
    State(app): State<Arc<App>>,
    Extension(sender): Extension<Arc<RequestSender>>,
) -> Response {
    let status = app.core.session_router.store().status();
    let code = match &app.directory.code {
        Some(code) => Some(code.state().await),
        None => None,
    };
    let nothing_else =
        app.core.servers.iter().next().is_none() && app.directory.agents.iter().next().is_none();
    let (mut http_status, mut word) = match status.mode {
        StoreMode::Normal => (StatusCode::OK, "ok"),
        StoreMode::Degraded => (StatusCode::OK, "degraded"),
        StoreMode::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
    };
    let store_word = word;
    let worker_refusal = app.core.session_router.store().worker_refusal();
    if worker_refusal.is_some() {
        // Without heartbeats this gateway gets no turns, and others take over what it owns.
        (http_status, word) = (StatusCode::SERVICE_UNAVAILABLE, "unavailable");
    }
    let departure = app.core.session_router.departure();
    if departure.is_leaving() {
        // Open requests are finished; load balancers must send no new ones.
        let why = match departure.is_stopping() {
            true => "stopping",
            false => "draining",
        };
        (http_status, word) = (StatusCode::SERVICE_UNAVAILABLE, why);
    }
    match &code {
        Some(code) if !code.is_ready() && nothing_else => {
            (http_status, word) = (StatusCode::SERVICE_UNAVAILABLE, "unavailable");
        }
        Some(code) if !code.is_ready() && http_status == StatusCode::OK => word = "degraded",
        _ => {}
    }
    // One failed probe is no reason: what probes find ready is not away.
    let is_away = |server: &Arc<Server>| {
        server.health().0 == ServerHealth::Unavailable && server.readiness() != Readiness::Ready
    };
    if word == "ok" && app.core.servers.iter().any(is_away) {
        word = "degraded";
    }
    let keys = app.authenticator.keys_state();
    match &keys {
        // Without keys no caller can be authenticated, so none can be served.
        Some((_, KeysState { keys: None, .. })) if !departure.is_leaving() => {
            (http_status, word) = (StatusCode::SERVICE_UNAVAILABLE, "unavailable");
        }
        Some((_, state)) if state.failure.is_some() && word == "ok" => word = "degraded",
        Some(_) | None => {}
    }
    if !sees_detail(&app, sender.peer.address.ip()) {
        let body = json!({"status": word});
        return reply::json(http_status, body.to_string());
    }
    let mut parts = serde_json::Map::new();
    let store = app.core.session_router.store();
    let mut about = serde_json::Map::new();
    about.insert("status".to_owned(), store_word.into());
    about.insert("kind".to_owned(), store.kind().into());
    about.insert("since_ms".to_owned(), since_ms(status.since).into());
    if let Some(redis) = store.redis_server() {
        about.insert("discovery".to_owned(), redis.discovery.into());
        about.insert("way".to_owned(), redis.way.into());
        about.insert("server".to_owned(), redis.address.into());
        about.insert("cause".to_owned(), redis.problem.into());
        if !redis.primaries.is_empty() {
            let primaries = redis.primaries.into_iter().map(|primary| {
                let status = match primary.problem {
                    None => "ok",
                    Some(_) => "unavailable",
                };
                json!({"address": primary.address, "status": status, "cause": primary.problem})
            });
            about.insert("primaries".to_owned(), primaries.collect());
        }
    }
    parts.insert("store".to_owned(), about.into());
    if let Some(refusal) = worker_refusal {
        let about = json!({"status": "unavailable", "cause": refusal.to_string()});
        parts.insert("heartbeat".to_owned(), about);
    }
    parts.insert("servers".to_owned(), servers(&app, code.as_ref()).into());
    if let Some((name, KeysState { keys, failure })) = keys {
        let word = match (keys, &failure) {
            (None, _) => "unavailable",
            (Some(_), Some(_)) => "degraded",
            (Some(_), None) => "ok",
        };
        let about = json!({"status": word, "keys": keys, "cause": failure});
        parts.insert(name.to_owned(), about);
    }
    if let Some(code) = code {
        parts.insert("code".to_owned(), code.into_json());
    }
    let body = json!({
        "status": word,
        "worker": app.core.session_router.worker().as_str(),
        "parts": parts,
    });
    reply::json(http_status, body.to_string())
}

fn servers(app: &App, code: Option<&CodeState>) -> serde_json::Map<String, serde_json::Value> {
    let upstream = app.core.servers.iter().map(|server| {
        let (health, contact) = server.health();
        let about = json!({
            "status": <&'static str>::from(health),
            "instances": server.instances.len(),
            "readiness": <&'static str>::from(server.readiness()),
            "parked": server.parked_instances(),
            "affinity": if server.keeps_new_sessions() { "on" } else { "off" },
            "last_contact": contact.map(|contact| json!({
                "at_ms": contact.at_ms,
                "outcome": <&'static str>::from(contact.outcome()),
                // The caller is not identified: output of programs is only for their clients and the log.
                "cause": contact.failure.map(|cause| cause.text),
            })),
        });
        (server.id.to_string(), about)
    });
    let status = code.map_or("unavailable", CodeState::word);
    let code = app.directory.code.iter().flat_map(|code| code.iter());
    let code = code.map(|server| {
        let about = json!({ "status": status, "kind": "code" });
        (server.id.to_string(), about)
    });
    let of_kind = |id: &ServerName, kind: &str, readiness: Readiness| {
        let readiness: &str = readiness.into();
        let about = json!({ "kind": kind, "readiness": readiness });
        (id.to_string(), about)
    };
    let groups = app.directory.groups.iter();
    let groups = groups.map(|group| of_kind(&group.id, "group", group.readiness()));
    let agents = app.directory.agents.iter().map(|agent| {
        let readiness = match agent.has_program() {
            true => Readiness::Ready,
            false => Readiness::NotReady,
        };
        of_kind(&agent.id, "agent", readiness)
    });
    let admin = app.directory.admin.iter();
    let admin = admin.map(|server| of_kind(&server.id, "admin", Readiness::Ready));
    let own = code.chain(groups).chain(agents).chain(admin);
    upstream.chain(own).collect()
}

/// Metrics in Prometheus text format.
pub(super) async fn metrics(
    State(app): State<Arc<App>>,
    Extension(sender): Extension<Arc<RequestSender>>,
) -> Response {
    if let Some(refusal) = refuse_detail(&app, &sender) {
        return refusal;
    }
    let is_degraded = app.core.session_router.store().is_degraded();
    let (bindings, connections) = (
        app.core.session_router.active_bindings().count(),
        app.core.session_router.owned_connections().count(),
    );
    let is_draining = app.core.session_router.departure().is_leaving();
    metrics::snapshot(bindings, connections, is_degraded, is_draining);
    for server in app.core.servers.iter() {
        upstream::publish_server_state(server);
    }
    if let Some(code) = &app.directory.code {
        metrics::code_snapshot(code.services().sessions_active());
    }
    let text = app.metrics.render() + &metrics::process_figures();
    let mut reply = Response::new(text.into());
    reply.headers_mut().insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8"),
    );
    reply
}

/// For `mooring top`: the busiest users and sessions of this gateway, or with `?user=DIGEST` the latest refusals of a user.
pub(super) async fn top(
    State(app): State<Arc<App>>,
    Extension(sender): Extension<Arc<RequestSender>>,
    RawQuery(query): RawQuery,
) -> Response {
    if let Some(refusal) = refuse_detail(&app, &sender) {
        return refusal;
    }
    let log = &app.core.request_log;
    let user = query
        .as_deref()
        .and_then(|query| query.strip_prefix("user="));
    match user {
        Some(user) => reply::json_value(
            StatusCode::OK,
            &json!({ "refusals": log.refusals_of(user) }),
        ),
        None => reply::json_value(StatusCode::OK, &log.top()),
    }
}

/// The refusal for a sender that may not see names and figures.
fn refuse_detail(app: &App, sender: &RequestSender) -> Option<Response> {
    if sees_detail(app, sender.peer.address.ip()) {
        return None;
    }
    let error = ErrorBody::new(ErrorKind::Forbidden).detail(
        "figures are shown to loopback addresses and auth.trusted_peers; listen.probe_detail = \"everyone\" shows \
         them to all",
    );
    Some(reply::to_http(answer::error(&error)))
}

fn sees_detail(app: &App, peer: IpAddr) -> bool {
    match app.listen.probe_detail {
        ProbeDetail::Everyone => true,
        ProbeDetail::Trusted => {
            let peer = peer.to_canonical();
            peer.is_loopback() || app.authenticator.trusts(peer)
        }
    }
}

/// A time in Unix milliseconds.
fn since_ms(since: std::time::SystemTime) -> u64 {
    since
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| {
            u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
        })
}

/// The public keys by which upstream servers verify whom a request is for.
pub(super) async fn signing_keys(State(app): State<Arc<App>>) -> Response {
    let keys = app.caller_signer.as_ref().map(|signer| signer.keys_json());
    let mut response = reply::json(StatusCode::OK, keys.unwrap_or(r#"{"keys":[]}"#).to_owned());
    // As long as a token is valid.
    let max_age = HeaderValue::from_static("max-age=300");
    response.headers_mut().insert(CACHE_CONTROL, max_age);
    response
}
