//! One MCP session over raw HTTP; each request may go to another gateway.
//!
//! The types are plain JSON on purpose: a test sees a field that a gateway dropped or added.

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request};
use serde_json::{Value, json};

use crate::client::{HttpClient, Reply};

/// The revision that a session requests by default.
pub const PROTOCOL_VERSION: &str = "2025-11-25";

/// How to begin a session.
#[derive(Clone, Debug)]
pub struct Opening {
    /// The revision to request.
    pub protocol_version: String,
    /// The client's capabilities.
    pub capabilities: Value,
    /// Headers to put on every request, for instance the principal's.
    pub headers: HeaderMap,
}

impl Default for Opening {
    fn default() -> Self {
        Self {
            protocol_version: PROTOCOL_VERSION.to_owned(),
            capabilities: json!({"elicitation": {}, "sampling": {}, "roots": {}}),
            headers: HeaderMap::new(),
        }
    }
}

impl Opening {
    /// Adds a header to every request of the session.
    pub fn header(mut self, name: &str, value: &str) -> anyhow::Result<Self> {
        self.headers
            .insert(name.parse::<HeaderName>()?, HeaderValue::from_str(value)?);
        Ok(self)
    }

    /// The params of `initialize`.
    #[must_use]
    pub fn initialize_params(&self) -> Value {
        json!({
            "protocolVersion": self.protocol_version,
            "capabilities": self.capabilities,
            "clientInfo": {"name": "mooring-tests", "version": env!("CARGO_PKG_VERSION")},
        })
    }
}

/// A session after its handshake.
#[derive(Debug)]
pub struct McpSession {
    client: HttpClient,
    endpoints: Vec<String>,
    turn: usize,
    id: Option<String>,
    headers: HeaderMap,
    next_request_id: u64,
    /// The result of `initialize`.
    pub initialize_result: Value,
}

/// What came before the response on its stream, and the response.
#[derive(Debug)]
pub struct Exchange {
    /// Notifications and requests of the server, in order.
    pub before: Vec<Value>,
    /// The JSON-RPC response, `result` or `error`.
    pub response: Value,
}

impl McpSession {
    /// Initializes over `endpoints` (full URLs, used in turn), with the default [`Opening`].
    pub async fn open(client: &HttpClient, endpoints: &[String]) -> anyhow::Result<Self> {
        Self::open_with(client, endpoints, Opening::default()).await
    }

    /// Initializes as `opening` says: `initialize`, then `notifications/initialized`.
    pub async fn open_with(
        client: &HttpClient,
        endpoints: &[String],
        opening: Opening,
    ) -> anyhow::Result<Self> {
        let params = opening.initialize_params();
        let mut session = Self {
            client: client.clone(),
            endpoints: endpoints.to_owned(),
            turn: 0,
            id: None,
            headers: opening.headers,
            next_request_id: 1,
            initialize_result: Value::Null,
        };
        let request = session.request_body("initialize", params);
        let reply = session.post(&request).await?;
        session.id = reply.header("mcp-session-id").map(str::to_owned);
        let response = read_exchange(reply, &request).await?.response;
        session.initialize_result = result_of(response).context("initialize")?;
        let version = session
            .initialize_result
            .get("protocolVersion")
            .and_then(Value::as_str);
        let version = HeaderValue::from_str(version.context("a protocol version")?)?;
        session.headers.insert("mcp-protocol-version", version);
        let accepted = session
            .post(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
            .await?;
        ensure!(
            accepted.status == 202,
            "notifications/initialized: {}",
            accepted.status
        );
        Ok(session)
    }

    /// Puts this header on every request from now on, in place of another value.
    pub fn set_header(&mut self, name: &'static str, value: &str) -> anyhow::Result<()> {
        self.headers.insert(name, HeaderValue::from_str(value)?);
        Ok(())
    }

    /// Sends this header no more.
    pub fn remove_header(&mut self, name: &str) {
        self.headers.remove(name);
    }

    /// The session id, if the server gave one.
    #[must_use]
    pub fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// Another user of the same session: it shares the id and nothing else. `endpoints` are used in turn.
    #[must_use]
    pub fn fork(&self, client: &HttpClient, endpoints: &[String]) -> Self {
        Self {
            client: client.clone(),
            endpoints: endpoints.to_owned(),
            turn: 0,
            id: self.id.clone(),
            headers: self.headers.clone(),
            // Two users of one session must not use one request id at the same time.
            next_request_id: self.next_request_id + 1_000_000,
            initialize_result: self.initialize_result.clone(),
        }
    }

    /// Calls a tool; its result. An error response is an error.
    pub async fn call(&mut self, tool: &str, arguments: Value) -> anyhow::Result<Value> {
        let exchange = self
            .request("tools/call", json!({"name": tool, "arguments": arguments}))
            .await?;
        result_of(exchange.response).with_context(|| format!("call {tool}"))
    }

    /// Calls `increment` and returns the count.
    pub async fn increment(&mut self) -> anyhow::Result<u64> {
        let result = self.call("increment", json!({})).await?;
        counted(&result)
    }

    /// Makes the fixture ask for the secret while no call is in flight: its tool `ask_later` waits for the
    /// notification.
    pub async fn ask_later(&mut self, secret: &str) -> anyhow::Result<()> {
        self.call("ask_later", json!({"secret": secret})).await?;
        let changed = json!({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"});
        let accepted = self.post(&changed).await?;
        ensure!(accepted.status == 202, "{changed}: {}", accepted.status);
        Ok(())
    }

    /// Sends a request and reads its stream up to the response.
    pub async fn request(&mut self, method: &str, params: Value) -> anyhow::Result<Exchange> {
        let body = self.request_body(method, params);
        let reply = self.post(&body).await?;
        read_exchange(reply, &body).await
    }

    /// The same, and answers requests of the server with the result of `answer`. Each response goes to the next
    /// endpoint.
    pub async fn request_answering(
        &mut self,
        method: &str,
        params: Value,
        answer: impl FnMut(&Value) -> anyhow::Result<Value>,
    ) -> anyhow::Result<Exchange> {
        let body = self.request_body(method, params);
        let reply = self.post(&body).await?;
        self.read_answering(reply, &body, answer).await
    }

    /// Reads the reply to `request` up to its response, and answers requests of the server like
    /// [`McpSession::request_answering`].
    pub async fn read_answering(
        &mut self,
        mut reply: Reply,
        request: &Value,
        mut answer: impl FnMut(&Value) -> anyhow::Result<Value>,
    ) -> anyhow::Result<Exchange> {
        let mut before = Vec::new();
        while let Some(message) = reply.next_message().await? {
            let is_request = message.get("method").is_some() && message.get("id").is_some();
            if is_request {
                let result = answer(&message)?;
                let answer = json!({"jsonrpc": "2.0", "id": message.get("id"), "result": result});
                let accepted = self.post(&answer).await?;
                ensure!(accepted.status == 202, "{answer}: {}", accepted.status);
            } else if message.get("id") == request.get("id") {
                return Ok(Exchange {
                    before,
                    response: message,
                });
            }
            before.push(message);
        }
        bail!("the stream ended before the response; it held {before:?}")
    }

    /// A JSON-RPC request with a new id.
    pub fn request_body(&mut self, method: &str, params: Value) -> Value {
        let id = self.next_request_id;
        self.next_request_id += 1;
        json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
    }

    /// Posts one message to the next endpoint; the reply as it is.
    pub async fn post(&mut self, message: &Value) -> anyhow::Result<Reply> {
        let body = serde_json::to_vec(message).context("write the message")?;
        let request = self.http_request(Method::POST, body.into())?;
        self.client.send(request).await
    }

    /// Opens the stream for messages that belong to no request, or resumes one after `last_event_id`.
    pub async fn listen(&mut self, last_event_id: Option<&str>) -> anyhow::Result<Reply> {
        let mut request = self.http_request(Method::GET, Bytes::new())?;
        if let Some(id) = last_event_id {
            request
                .headers_mut()
                .insert("last-event-id", HeaderValue::from_str(id)?);
        }
        self.client.send(request).await
    }

    /// DELETE: ends the session.
    pub async fn delete(&mut self) -> anyhow::Result<Reply> {
        let request = self.http_request(Method::DELETE, Bytes::new())?;
        self.client.send(request).await
    }

    /// A request of this session to the next endpoint with all its headers, to be changed and sent by a
    /// test through [`HttpClient::send`].
    pub fn http_request(&mut self, method: Method, body: Bytes) -> anyhow::Result<Request<Bytes>> {
        let endpoint = self
            .endpoints
            .get(self.turn % self.endpoints.len().max(1))
            .context("an endpoint")?;
        self.turn += 1;
        let mut request = Request::builder()
            .method(method.clone())
            .uri(endpoint)
            .body(body)?;
        let headers = request.headers_mut();
        headers.extend(self.headers.clone());
        let accepted = match method {
            Method::GET => "text/event-stream",
            _ => "application/json, text/event-stream",
        };
        headers.insert("accept", HeaderValue::from_static(accepted));
        if method == Method::POST {
            headers.insert("content-type", HeaderValue::from_static("application/json"));
        }
        if let Some(id) = &self.id {
            headers.insert("mcp-session-id", HeaderValue::from_str(id)?);
        }
        Ok(request)
    }
}

/// Reads the reply to `request` up to its response.
pub async fn read_exchange(mut reply: Reply, request: &Value) -> anyhow::Result<Exchange> {
    if !reply.status.is_success() {
        let status = reply.status;
        bail!(
            "status {status}: {}",
            reply.text().await.unwrap_or_default()
        );
    }
    let mut before = Vec::new();
    while let Some(message) = reply.next_message().await? {
        let answers = message.get("id") == request.get("id") && message.get("method").is_none();
        if answers {
            return Ok(Exchange {
                before,
                response: message,
            });
        }
        before.push(message);
    }
    bail!("the stream ended before the response; it held {before:?}")
}

/// The count in the result of `increment`.
pub(crate) fn counted(result: &Value) -> anyhow::Result<u64> {
    let count = result
        .pointer("/structuredContent/count")
        .and_then(Value::as_u64);
    count.with_context(|| format!("a count: {result}"))
}

/// The `result` of a response.
pub fn result_of(response: Value) -> anyhow::Result<Value> {
    match response.get("result") {
        Some(result) => Ok(result.clone()),
        None => bail!("an error response: {response}"),
    }
}
