//! Requests without a session (MCP 2026-07-28), at servers whose answers a test writes.

mod eras;
mod headers;
mod input;
mod listening;
mod tasks;

use bytes::Bytes;
use http::Request;
use mooring_tests::client::{HttpClient, Reply};
use mooring_tests::fleet::settings_toml;
use mooring_tests::fleet_keys::FleetKeys;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::redis::Redis;
use serde_json::{Value, json};

use crate::scripted::Seen;
use crate::small_server::{JSON, SmallServer, response, result};

/// The revision.
const REVISION: &str = "2026-07-28";

/// A request of this revision, with the headers that it needs. `params` get their `_meta`.
fn request(id: u64, method: &str, params: Value) -> Sessionless {
    Sessionless {
        id: json!(id),
        method: method.to_owned(),
        params,
        headers: Vec::new(),
    }
}

/// A call of a tool.
fn call(id: u64, tool: &str, arguments: &Value) -> Sessionless {
    request(
        id,
        "tools/call",
        json!({"name": tool, "arguments": arguments}),
    )
}

#[derive(Clone)]
struct Sessionless {
    id: Value,
    method: String,
    params: Value,
    headers: Vec<(&'static str, String)>,
}

impl Sessionless {
    /// With another header, or another value of one.
    fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }

    /// With another member of the params.
    fn param(mut self, name: &str, value: Value) -> Self {
        self.params[name] = value;
        self
    }

    async fn send(&self, url: &str) -> anyhow::Result<Reply> {
        let mut params = self.params.clone();
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": REVISION,
            "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        });
        let body = json!({
            "jsonrpc": "2.0", "id": self.id, "method": self.method, "params": params,
        });
        let mut request = Request::post(url)
            .header("content-type", JSON)
            .header("accept", "application/json, text/event-stream")
            .header("mcp-protocol-version", REVISION)
            .header("mcp-method", &self.method);
        let name = ["name", "uri", "taskId"].map(|member| self.params[member].as_str());
        if let Some(name) = name.into_iter().flatten().next() {
            request = request.header("mcp-name", name);
        }
        let mut request = request.body(Bytes::from(body.to_string()))?;
        for (name, value) in &self.headers {
            request.headers_mut().insert(*name, value.parse()?);
        }
        HttpClient::default().send(request).await
    }

    /// The status, and the message in the body.
    async fn answer(&self, url: &str) -> anyhow::Result<(u16, Value)> {
        let reply = self.send(url).await?;
        let status = reply.status.as_u16();
        Ok((status, reply.json().await?))
    }
}

/// What a server without sessions offers.
fn discovered(request: &Seen) -> String {
    result(
        request,
        "",
        &json!({
            "resultType": "complete", "supportedVersions": [REVISION, "2099-01-01"],
            "capabilities": {"tools": {}}, "ttlMs": 1000, "cacheScope": "public",
        }),
    )
}

/// The refusal of a server that has never heard of this revision.
fn unheard_of(request: &Seen) -> String {
    let id = request.json()["id"].to_string();
    let error = format!(
        r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32000,"message":"no session"}}}}"#
    );
    response("400 Bad Request", JSON, "", &error)
}

/// A gateway over an own store, whose only server is `tools`.
async fn gateway(server: &SmallServer, fields: &str) -> anyhow::Result<Gateway> {
    let settings = settings_toml("embedded", &[server.url()]) + fields;
    Gateway::start("sessionless", Settings::toml(settings)).await
}

/// Gateways that share a Redis and their keys.
struct Gateways {
    gateways: Vec<Gateway>,
    _keys: FleetKeys,
    _redis: Redis,
}

impl Gateways {
    async fn start(count: usize, instances: &[String]) -> anyhow::Result<Self> {
        let (redis, keys) = (Redis::start().await?, FleetKeys::new()?);
        let toml = settings_toml(&redis.url(), instances) + "era = \"modern\"\n";
        let settings = Settings::toml(toml).more_toml(&format!("[worker]\n{}", keys.toml()));
        Ok(Self {
            gateways: Gateway::fleet(count, &settings).await?,
            _keys: keys,
            _redis: redis,
        })
    }

    fn url(&self, at: usize) -> String {
        self.gateways[at].mcp_url("tools")
    }
}
