//! An upstream server of Streamable HTTP in this process: it keeps sessions, and answers calls of `echo` and
//! `fail` as JSON, and of `stream` and `slow` as events.

use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use futures_util::{StreamExt, stream};
use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// A running server; it ends when dropped.
pub(super) struct FakeUpstream {
    pub(super) url: String,
    sessions: Arc<Sessions>,
    serving: JoinHandle<()>,
}

/// The sessions of one server.
struct Sessions {
    name: &'static str,
    open: Mutex<(u64, HashSet<String>)>,
}

impl FakeUpstream {
    pub(super) async fn start(name: &'static str) -> Self {
        let sessions = Arc::new(Sessions {
            name,
            open: Mutex::default(),
        });
        let routes = Router::new()
            .route("/mcp", post(take).delete(end))
            .with_state(Arc::clone(&sessions));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self {
            url: format!("http://{}/mcp", listener.local_addr().unwrap()),
            sessions,
            serving: tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() }),
        }
    }

    /// How many sessions are open.
    pub(super) fn sessions(&self) -> usize {
        self.sessions.open.lock().unwrap().1.len()
    }

    /// Forgets every session, as a restart does.
    pub(super) fn forget_sessions(&self) {
        self.sessions.open.lock().unwrap().1.clear();
    }
}

impl Drop for FakeUpstream {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn take(State(sessions): State<Arc<Sessions>>, headers: HeaderMap, body: Bytes) -> Response {
    let message: Value = serde_json::from_slice(&body).unwrap();
    let result = |result: Value| {
        // The id as it was written, and a member that no revision knows.
        format!(
            r#"{{ "x-vendor": 1.0e0,"id" :{},"result":{result},"jsonrpc":"2.0"}}"#,
            message["id"]
        )
    };
    let json = |text: String| ([("content-type", "application/json")], text).into_response();
    if message["method"] == "initialize" {
        let id = {
            let mut open = sessions.open.lock().unwrap();
            open.0 += 1;
            let id = format!("{}-{}", sessions.name, open.0);
            open.1.insert(id.clone());
            id
        };
        let text = result(
            json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
            "serverInfo": {"name": sessions.name, "version": "1"}}),
        );
        let head = [("mcp-session-id", id.as_str())];
        return (head, json(text)).into_response();
    }
    if !sessions.knows(&headers) {
        return (StatusCode::NOT_FOUND, "no such session").into_response();
    }
    if message.get("id").is_none() || message.get("method").is_none() {
        return StatusCode::ACCEPTED.into_response();
    }
    let params = &message["params"];
    match (message["method"].as_str().unwrap(), params["name"].as_str()) {
        ("ping", _) => json(result(json!({}))),
        ("tools/list", _) => {
            let tool = |name: &str| json!({"name": name, "inputSchema": {"type": "object"}});
            json(result(json!({"tools": [tool("echo"), tool("stream")]})))
        }
        ("tools/call", Some("echo")) => {
            let structured = json!({"by": sessions.name, "arguments": params["arguments"]});
            json(result(
                json!({"content": [], "structuredContent": structured}),
            ))
        }
        ("tools/call", Some("stream")) => {
            let progress = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}"#;
            let text = format!(
                ": hello\nid: 1\ndata: {progress}\n\nid: 2\nevent: message\ndata: {}\n\n",
                result(json!({"content": []}))
            );
            ([("content-type", "text/event-stream")], text).into_response()
        }
        ("tools/call", Some("fail")) => json(result(json!({"content": [], "isError": true}))),
        // An event at once, and the response after some milliseconds.
        ("tools/call", Some("slow")) => {
            let progress = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}"#;
            let wait = Duration::from_millis(params["arguments"]["ms"].as_u64().unwrap());
            let first =
                stream::once(async move { Ok::<_, Infallible>(format!("data: {progress}\n\n")) });
            let response = format!("data: {}\n\n", result(json!({"content": []})));
            let later = stream::once(async move {
                tokio::time::sleep(wait).await;
                Ok(response)
            });
            let body = Body::from_stream(first.chain(later));
            ([("content-type", "text/event-stream")], body).into_response()
        }
        (method, _) => {
            let id = &message["id"];
            let error = json!({"code": -32601, "message": format!("no {method}")});
            json(json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string())
        }
    }
}

async fn end(State(sessions): State<Arc<Sessions>>, headers: HeaderMap) -> StatusCode {
    let id = headers["mcp-session-id"].to_str().unwrap();
    match sessions.open.lock().unwrap().1.remove(id) {
        true => StatusCode::NO_CONTENT,
        false => StatusCode::NOT_FOUND,
    }
}

impl Sessions {
    fn knows(&self, headers: &HeaderMap) -> bool {
        headers.get("mcp-session-id").is_some_and(|id| {
            let id = id.to_str().unwrap();
            self.open.lock().unwrap().1.contains(id)
        })
    }
}
