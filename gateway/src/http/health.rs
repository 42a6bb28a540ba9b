//! For operators and their load balancers: liveness, readiness with each part's state, and metrics.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use serde_json::json;

use super::{App, answer};
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
    let (code, word) = match status.mode {
        StoreMode::Normal => (StatusCode::OK, "ok"),
        StoreMode::Degraded => (StatusCode::OK, "degraded"),
        StoreMode::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
    };
    let body = json!({
        "status": word,
        "worker": app.affinity.worker().as_str(),
        "parts": {
            "store": {
                "status": word,
                "kind": app.affinity.store().kind(),
                "since_ms": since_ms(status.since),
            },
            "servers": app
                .servers
                .iter()
                .map(|server| (server.id.to_string(), json!({
                    "status": "ok",
                    "instances": server.instances.len(),
                    "affinity": if server.keeps_sessions { "on" } else { "off" },
                })))
                .collect::<serde_json::Map<_, _>>(),
        },
    });
    answer::json(code, Bytes::from(body.to_string()))
}

/// Prometheus text.
pub(super) async fn metrics(State(app): State<Arc<App>>) -> Response {
    let is_degraded = app.affinity.store().is_degraded();
    metrics::snapshot(app.affinity.driven().count(), is_degraded);
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
