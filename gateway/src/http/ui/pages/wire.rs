//! One MCP exchange of the operator with a server of this gateway, and its bytes.
//!
//! The request takes the way of every client's: it is admitted, counted, logged, and passes rules, hooks and limits as the
//! operator's own.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http::request::Parts;
use http::{HeaderMap, Method, Request, Version};
use http_body_util::{BodyExt as _, Limited};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::http::app::App;
use crate::http::caller::RequestSender;
use crate::http::endpoint;
use mooring_identity::{Identity, Peer};
use mooring_protocol::header::{MCP_PROTOCOL_VERSION, MCP_SESSION_ID, X_MCP_SESSION_ID};
use mooring_secrets::digest;

/// The revision of MCP that the page speaks.
const REVISION: &str = "2025-11-25";
/// How long a reply may take.
const REPLY_WITHIN: Duration = Duration::from_secs(60);
/// Longest reply that is read.
const REPLY_BYTES_MAX: usize = 1024 * 1024;

/// A request and its reply, as they were on the wire.
#[derive(Clone, Debug)]
pub(super) struct WireExchange {
    pub(super) request: String,
    pub(super) reply: String,
    /// Whether the reply has a status of success.
    pub(super) is_success: bool,
    session: Option<String>,
    /// The message of the reply.
    pub(super) message: Option<Value>,
}

/// A session of the operator with one server.
pub(super) struct WireSession {
    app: Arc<App>,
    identity: Arc<Identity>,
    sender: RequestSender,
    server: String,
    /// Whether the server has answered `initialize`.
    is_open: bool,
    /// Its id, if the server has assigned one.
    session: Option<String>,
}

impl WireSession {
    /// Begins a session, or says what came instead.
    pub(super) async fn open(
        app: &Arc<App>,
        identity: &Arc<Identity>,
        peer: &Peer,
        server: &str,
    ) -> Result<Self, WireExchange> {
        let mut session = Self {
            app: Arc::clone(app),
            identity: Arc::clone(identity),
            sender: RequestSender::over(peer.clone(), Arc::default()),
            server: server.to_owned(),
            is_open: false,
            session: None,
        };
        let client = json!({"name": "mooring-page", "version": env!("CARGO_PKG_VERSION")});
        let params = json!({"protocolVersion": REVISION, "capabilities": {}, "clientInfo": client});
        let opened = session.request("initialize", &params).await;
        if !opened.has_result() {
            return Err(opened);
        }
        session.is_open = true;
        session.session = opened.session;
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        session
            .exchange(Method::POST, initialized.to_string())
            .await;
        Ok(session)
    }

    /// Sends a request, and reads its reply.
    pub(super) async fn request(&self, method: &str, params: &Value) -> WireExchange {
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        self.exchange(Method::POST, message.to_string()).await
    }

    /// Ends the session.
    pub(super) async fn close(self) {
        if self.session.is_some() {
            self.exchange(Method::DELETE, String::new()).await;
        }
    }

    async fn exchange(&self, method: Method, message: String) -> WireExchange {
        let Some(head) = self.head(method) else {
            return WireExchange::failed(message, "the request could not be made");
        };
        let request = request_text(&head, &message);
        let id = Some(&*self.server);
        let caller = Some(Arc::clone(&self.identity));
        let body = Body::from(message);
        let served = endpoint::serve_caller(&self.app, id, &self.sender, &head, body, caller);
        let Ok(reply) = timeout(REPLY_WITHIN, served).await else {
            return WireExchange::failed(request, "no reply within 60 s");
        };
        let (head, body) = reply.into_parts();
        let limited = Limited::new(body, REPLY_BYTES_MAX).collect();
        let body = match timeout(REPLY_WITHIN, limited).await {
            Ok(Ok(body)) => String::from_utf8_lossy(&body.to_bytes()).into_owned(),
            Ok(Err(error)) => format!("(the rest of the reply could not be read: {error})"),
            Err(_) => "(the reply did not end within 60 s)".to_owned(),
        };
        let status = head.status;
        let session = head.headers.get(MCP_SESSION_ID);
        WireExchange {
            request,
            reply: format!("HTTP/1.1 {status}\n{}\n{body}", header_text(&head.headers)),
            is_success: status.is_success(),
            session: session.and_then(|id| Some(id.to_str().ok()?.to_owned())),
            message: message_of(&body),
        }
    }

    fn head(&self, method: Method) -> Option<Parts> {
        let mut request = Request::builder()
            .method(method)
            .version(Version::HTTP_11)
            .uri(format!("/servers/{}/mcp", self.server))
            .header("accept", "application/json, text/event-stream")
            .header("content-type", "application/json");
        if self.is_open {
            request = request.header(MCP_PROTOCOL_VERSION, REVISION);
        }
        if let Some(session) = &self.session {
            request = request.header(MCP_SESSION_ID, session);
        }
        Some(request.body(()).ok()?.into_parts().0)
    }
}

impl WireExchange {
    fn failed(request: String, reason: &str) -> Self {
        Self {
            request,
            reply: format!("({reason})"),
            is_success: false,
            session: None,
            message: None,
        }
    }

    /// The result in the reply.
    pub(super) fn result(&self) -> Option<&Value> {
        self.message.as_ref()?.get("result")
    }

    fn has_result(&self) -> bool {
        self.is_success && self.result().is_some()
    }
}

fn request_text(head: &Parts, body: &str) -> String {
    format!(
        "{} {} HTTP/1.1\n{}\n{body}",
        head.method,
        head.uri,
        header_text(&head.headers)
    )
}

/// The headers as they are sent, but for the id of a session.
fn header_text(headers: &HeaderMap) -> String {
    let line = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
        let value = String::from_utf8_lossy(value.as_bytes());
        match *name == MCP_SESSION_ID || *name == X_MCP_SESSION_ID {
            // A secret.
            true => format!("{name}: #{}\n", digest::short(&value)),
            false => format!("{name}: {value}\n"),
        }
    };
    headers.iter().map(line).collect()
}

/// The response in a body of JSON, or in one of events.
fn message_of(body: &str) -> Option<Value> {
    let is_response =
        |message: &Value| message.get("id").is_some() && message.get("method").is_none();
    let parse = |text: &str| serde_json::from_str(text).ok().filter(is_response);
    let events = || {
        body.lines()
            .filter_map(|line| line.strip_prefix("data:"))
            .find_map(|data| parse(data.trim()))
    };
    parse(body).or_else(events)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_is_found_in_both_forms_of_a_body() {
        let response = json!({"jsonrpc": "2.0", "id": 1, "result": {}});
        assert_eq!(message_of(&response.to_string()), Some(response.clone()));
        let progress = json!({"jsonrpc": "2.0", "method": "notifications/progress"});
        let question = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
        let events =
            format!(": x\n\ndata: {progress}\n\ndata: {question}\n\nid: 3\ndata: {response}\n\n");
        assert_eq!(message_of(&events), Some(response));
        assert_eq!(message_of("no JSON"), None);
    }
}
