//! Streamable HTTP of MCP at `/mcp`, with a session per client and a JSON body as every reply.
//!
//! Invariant: without a session that began here, only `initialize` is answered; everything else is 404, as the protocol
//! has it for a server that has lost its sessions.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::post;
use serde_json::{Value, json};

use crate::sessions::Sessions;

const SESSION_HEADER: &str = "mcp-session-id";

/// The revisions of MCP whose sessions this server knows, the newest first.
const REVISIONS: [&str; 3] = ["2025-11-25", "2025-06-18", "2025-03-26"];

/// JSON-RPC: no such method.
const METHOD_NOT_FOUND: i64 = -32601;

/// JSON-RPC: parameters that do not fit.
const INVALID_PARAMS: i64 = -32602;

/// One running server.
#[derive(Debug)]
struct Server {
    instance: String,
    sessions: Sessions,
}

/// The server's routes, and its sessions.
pub(crate) fn router(instance: String) -> axum::Router {
    let server = Arc::new(Server {
        instance,
        sessions: Sessions::default(),
    });
    // GET is answered 405: this server has nothing to say unasked.
    axum::Router::new()
        .route("/mcp", post(receive).delete(end_session))
        .with_state(server)
}

async fn receive(
    State(server): State<Arc<Server>>,
    headers: HeaderMap,
    Json(message): Json<Value>,
) -> Response {
    let Some(method) = message.get("method").and_then(Value::as_str) else {
        return StatusCode::ACCEPTED.into_response();
    };
    if method == "initialize" {
        return initialize(&server, &message);
    }
    let Some(session) = session_of(&headers).filter(|id| server.sessions.contains(id)) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let Some(id) = message.get("id") else {
        return StatusCode::ACCEPTED.into_response();
    };
    let answer = match method {
        "ping" => Ok(json!({})),
        "tools/list" => Ok(tools()),
        "tools/call" => call_tool(&server, session, &message),
        _ => Err((METHOD_NOT_FOUND, format!("no method {method}"))),
    };
    Json(reply(id, answer)).into_response()
}

fn initialize(server: &Server, message: &Value) -> Response {
    let Some(session) = server.sessions.begin() else {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    };
    let asked = message.pointer("/params/protocolVersion");
    let known = REVISIONS
        .into_iter()
        .find(|known| asked == Some(&json!(known)));
    let result = json!({
        "protocolVersion": known.unwrap_or(REVISIONS[0]),
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "mooring-demo-server", "version": env!("CARGO_PKG_VERSION")},
        "instructions": "`increment` counts per session; `whoami` says which instance answers.",
    });
    let id = message.get("id").unwrap_or(&Value::Null);
    ([(SESSION_HEADER, session)], Json(reply(id, Ok(result)))).into_response()
}

async fn end_session(State(server): State<Arc<Server>>, headers: HeaderMap) -> StatusCode {
    match session_of(&headers).is_some_and(|id| server.sessions.end(id)) {
        true => StatusCode::NO_CONTENT,
        false => StatusCode::NOT_FOUND,
    }
}

fn session_of(headers: &HeaderMap) -> Option<&str> {
    headers.get(SESSION_HEADER)?.to_str().ok()
}

fn reply(id: &Value, answer: Result<Value, (i64, String)>) -> Value {
    match answer {
        Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
        Err((code, message)) => {
            json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})
        }
    }
}

fn tools() -> Value {
    let no_arguments = json!({"type": "object", "properties": {}});
    json!({"tools": [
        {
            "name": "increment",
            "description": "Add one to this session's count, and return it.",
            "inputSchema": no_arguments,
            "outputSchema": {
                "type": "object",
                "properties": {
                    "count": {"type": "integer"},
                    "instance": {"type": "string"},
                    "session": {"type": "string"},
                },
                "required": ["count", "instance", "session"],
            },
        },
        {
            "name": "whoami",
            "description": "Tell which instance, process and session answer.",
            "inputSchema": no_arguments,
            "annotations": {"readOnlyHint": true},
        },
    ]})
}

fn call_tool(server: &Server, session: &str, message: &Value) -> Result<Value, (i64, String)> {
    let name = message.pointer("/params/name").and_then(Value::as_str);
    match name {
        Some("increment") => {
            let count = server.sessions.increment(session);
            let structured =
                json!({"count": count, "instance": server.instance, "session": session});
            let text = count.unwrap_or_default().to_string();
            Ok(json!({
                "content": [{"type": "text", "text": text}],
                "structuredContent": structured,
            }))
        }
        Some("whoami") => {
            let structured = json!({
                "instance": server.instance,
                "pid": std::process::id(),
                "session": session,
            });
            Ok(json!({
                "content": [{"type": "text", "text": structured.to_string()}],
                "structuredContent": structured,
            }))
        }
        unknown => Err((
            INVALID_PARAMS,
            format!("no tool {}", unknown.unwrap_or("without a name")),
        )),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use axum::body::Body;
    use axum::http::{Method, Request};
    use http_body_util::BodyExt;
    use tower::ServiceExt;

    use super::*;

    async fn send(
        server: &axum::Router,
        method: Method,
        session: Option<&str>,
        message: Value,
    ) -> (StatusCode, HeaderMap, Value) {
        let mut request = Request::builder()
            .method(method)
            .uri("/mcp")
            .header("content-type", "application/json");
        if let Some(session) = session {
            request = request.header(SESSION_HEADER, session);
        }
        let request = request.body(Body::from(message.to_string())).unwrap();
        let (parts, body) = server.clone().oneshot(request).await.unwrap().into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let body = serde_json::from_slice(&body).unwrap_or_default();
        (parts.status, parts.headers, body)
    }

    async fn begin(server: &axum::Router) -> String {
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize",
            "params": {"protocolVersion": "2025-06-18"}});
        let (status, headers, body) = send(server, Method::POST, None, message).await;
        assert_eq!(status, StatusCode::OK);
        assert_eq!(
            body.pointer("/result/protocolVersion").unwrap(),
            "2025-06-18"
        );
        headers
            .get(SESSION_HEADER)
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned()
    }

    async fn increment(server: &axum::Router, session: &str) -> (StatusCode, Value) {
        let message = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call",
            "params": {"name": "increment", "arguments": {}}});
        let (status, _, body) = send(server, Method::POST, Some(session), message).await;
        let count = body.pointer("/result/structuredContent/count").cloned();
        (status, count.unwrap_or_default())
    }

    #[tokio::test]
    async fn each_session_has_its_own_count() {
        let server = router("a".to_owned());
        let (first, second) = (begin(&server).await, begin(&server).await);
        assert_eq!(increment(&server, &first).await, (StatusCode::OK, json!(1)));
        assert_eq!(increment(&server, &first).await, (StatusCode::OK, json!(2)));
        assert_eq!(
            increment(&server, &second).await,
            (StatusCode::OK, json!(1))
        );
    }

    #[tokio::test]
    async fn an_unknown_or_ended_session_is_not_found() {
        let server = router("a".to_owned());
        let session = begin(&server).await;
        let unknown = increment(&server, "another").await;
        assert_eq!(unknown.0, StatusCode::NOT_FOUND);
        let (status, _, _) = send(&server, Method::DELETE, Some(&session), json!({})).await;
        assert_eq!(status, StatusCode::NO_CONTENT);
        assert_eq!(increment(&server, &session).await.0, StatusCode::NOT_FOUND);
    }
}
