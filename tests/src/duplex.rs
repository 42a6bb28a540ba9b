//! An MCP session on one connection that carries everything both ways: stdio, or HTTP+SSE of 2024-11-05.
//!
//! The types are plain JSON on purpose, as in [`crate::session`]. Every step has a time limit.

use std::collections::VecDeque;

use anyhow::{Context, bail};
use serde_json::{Value, json};

use crate::session::{Exchange, Opening, counted, result_of};

/// Transports messages. Both steps fail if they take longer than [`crate::client::STEP_WITHIN`].
pub trait Connection {
    /// Sends one message.
    fn send(&mut self, message: &Value) -> impl Future<Output = anyhow::Result<()>>;

    /// The next message, or `None` at the clean end of the connection.
    fn receive(&mut self) -> impl Future<Output = anyhow::Result<Option<Value>>>;
}

/// A session after its handshake.
#[derive(Debug)]
pub struct DuplexSession<C> {
    connection: C,
    next_request_id: u64,
    /// Received while waiting for another message.
    aside: VecDeque<Value>,
    /// The result of `initialize`.
    pub initialize_result: Value,
}

impl<C: Connection> DuplexSession<C> {
    /// Initializes as `opening` says; its headers are the connection's business. `initialize`, then
    /// `notifications/initialized`.
    pub async fn open(connection: C, opening: &Opening) -> anyhow::Result<Self> {
        let mut session = Self {
            connection,
            next_request_id: 1,
            aside: VecDeque::new(),
            initialize_result: Value::Null,
        };
        let exchange = session.request("initialize", opening.initialize_params());
        session.initialize_result = result_of(exchange.await?.response).context("initialize")?;
        session
            .send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
            .await?;
        Ok(session)
    }

    /// What carries the messages.
    pub fn connection(&mut self) -> &mut C {
        &mut self.connection
    }

    /// A JSON-RPC request with a new id.
    pub fn request_body(&mut self, method: &str, params: Value) -> Value {
        let id = self.next_request_id;
        self.next_request_id += 1;
        json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
    }

    /// Sends one message.
    pub async fn send(&mut self, message: &Value) -> anyhow::Result<()> {
        self.connection.send(message).await
    }

    /// The next unread message, or `None` at the clean end of the connection.
    pub async fn next_message(&mut self) -> anyhow::Result<Option<Value>> {
        match self.aside.pop_front() {
            Some(message) => Ok(Some(message)),
            None => self.connection.receive().await,
        }
    }

    /// The response to the request of this id. What else comes is kept for [`DuplexSession::next_message`] and later
    /// responses.
    pub async fn response(&mut self, id: &Value) -> anyhow::Result<Value> {
        let answers =
            |message: &Value| message.get("id") == Some(id) && message.get("method").is_none();
        if let Some(at) = self.aside.iter().position(answers) {
            return self.aside.remove(at).context("it was there");
        }
        while let Some(message) = self.connection.receive().await? {
            if answers(&message) {
                return Ok(message);
            }
            self.aside.push_back(message);
        }
        bail!("the connection ended before the response to {id}")
    }

    /// Sends a request and reads up to its response. Pings of the server are answered; any other request of it is an
    /// error.
    pub async fn request(&mut self, method: &str, params: Value) -> anyhow::Result<Exchange> {
        let answer = |question: &Value| match question.get("method").and_then(Value::as_str) {
            Some("ping") => Ok(json!({})),
            _ => bail!("nobody expected {question}"),
        };
        self.request_answering(method, params, answer).await
    }

    /// Sends a request and reads up to its response; a request of the server is answered with the result of `answer`.
    pub async fn request_answering(
        &mut self,
        method: &str,
        params: Value,
        mut answer: impl FnMut(&Value) -> anyhow::Result<Value>,
    ) -> anyhow::Result<Exchange> {
        let body = self.request_body(method, params);
        self.send(&body).await?;
        let mut before = Vec::new();
        while let Some(message) = self.next_message().await? {
            if message.get("method").is_none() && message.get("id") == body.get("id") {
                return Ok(Exchange {
                    before,
                    response: message,
                });
            }
            if let (Some(_), Some(id)) = (message.get("method"), message.get("id")) {
                let result = answer(&message)?;
                self.send(&json!({"jsonrpc": "2.0", "id": id, "result": result}))
                    .await?;
            }
            before.push(message);
        }
        bail!("the connection ended before the response; it held {before:?}")
    }

    /// Calls a tool; its result. An error response is an error.
    pub async fn call(&mut self, tool: &str, arguments: Value) -> anyhow::Result<Value> {
        let params = json!({"name": tool, "arguments": arguments});
        let exchange = self.request("tools/call", params).await?;
        result_of(exchange.response).with_context(|| format!("call {tool}"))
    }

    /// Calls `increment` and returns the count.
    pub async fn increment(&mut self) -> anyhow::Result<u64> {
        let result = self.call("increment", json!({})).await?;
        counted(&result)
    }
}
