//! For operators and their load balancers: liveness, readiness with each part's state, and metrics.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use serde_json::json;

use super::{App, answer};
use crate::code::server::CodeState;
use crate::metrics;
use crate::store::StoreMode;

/// The process runs.
pub(super) async fn healthz() -> Response {
    answer::json(StatusCode::OK, Bytes::from_static(br#"{"status":"ok"}"#))
}

/// The process can serve: 200 also while degraded, because a fleet that all leaves the load balancer at once serves
/// nobody; 503 only when nothing can be served.
pub(super) async fn readyz(State(app): State<Arc<App>>) -> Response {
    let status = app.affinity.store().status();
    let code = match &app.code {
        Some(code) => Some(code.state().await),
        None => None,
    };
    let nothing_else = app.servers.iter().next().is_none();
    let (mut http_status, mut word) = match status.mode {
        StoreMode::Normal => (StatusCode::OK, "ok"),
        StoreMode::Degraded => (StatusCode::OK, "degraded"),
        StoreMode::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
    };
    let store_word = word;
    if app.relay.stopping.is_cancelled() {
        // What is under way is finished; load balancers send nothing new.
        (http_status, word) = (StatusCode::SERVICE_UNAVAILABLE, "stopping");
    }
    match &code {
        Some(code) if !code.is_ready() && nothing_else => {
            (http_status, word) = (StatusCode::SERVICE_UNAVAILABLE, "unavailable");
        }
        Some(code) if !code.is_ready() && http_status == StatusCode::OK => word = "degraded",
        _ => {}
    }
    let mut parts = serde_json::Map::new();
    let store = json!({
        "status": store_word,
        "kind": app.affinity.store().kind(),
        "since_ms": since_ms(status.since),
    });
    parts.insert("store".to_owned(), store);
    parts.insert("servers".to_owned(), servers(&app, code.as_ref()).into());
    if let Some(code) = code {
        parts.insert("code".to_owned(), code.into_json());
    }
    let body = json!({
        "status": word,
        "worker": app.affinity.worker().as_str(),
        "parts": parts,
    });
    answer::json(http_status, Bytes::from(body.to_string()))
}

fn servers(app: &App, code: Option<&CodeState>) -> serde_json::Map<String, serde_json::Value> {
    let upstream = app.servers.iter().map(|server| {
        let about = json!({
            "status": "ok",
            "instances": server.instances.len(),
            "affinity": if server.keeps_sessions { "on" } else { "off" },
        });
        (server.id.to_string(), about)
    });
    let status = code.map_or("unavailable", CodeState::word);
    let code = app.code.iter().flat_map(|code| code.iter());
    let code = code.map(|server| {
        let about = json!({ "status": status, "kind": "code" });
        (server.id.to_string(), about)
    });
    upstream.chain(code).collect()
}

/// Prometheus text.
pub(super) async fn metrics(State(app): State<Arc<App>>) -> Response {
    let is_degraded = app.affinity.store().is_degraded();
    let (bindings, connections) = (app.affinity.driven().count(), app.affinity.owned().count());
    metrics::snapshot(bindings, connections, is_degraded);
    if let Some(code) = &app.code {
        metrics::code_snapshot(code.services().sessions_active());
    }
    let mut reply = Response::new(app.metrics.render().into());
    reply.headers_mut().insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8"),
    );
    reply
}

/// The moment as Unix milliseconds.
fn since_ms(since: std::time::SystemTime) -> u64 {
    since
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| {
            u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
        })
}
