//! Clients of MCP 2026-07-28, which has no sessions, at servers that count per session: they count on over three gateways.

mod keys;
mod losses;
mod sdks;
mod servers;

use anyhow::Context as _;
use bytes::Bytes;
use http::Request;
use mooring_tests::client::{HttpClient, Reply};
use mooring_tests::code::USER;
use mooring_tests::fixture::Fixture;
use mooring_tests::fleet::settings_toml;
use mooring_tests::fleet_keys::FleetKeys;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::redis::Redis;
use mooring_tests::session::{Exchange, read_exchange};
use serde_json::{Value, json};

const REVISION: &str = "2026-07-28";
/// The header, and the `_meta` key, of what the gateway says about sessions.
const SESSION_HEADER: &str = "mooring-session";
const SESSION_NOTE: &str = "mooring/session";
/// The error of a request whose session has ended.
const SESSION_ENDED: i64 = -32001;

/// Three gateways, whose users are named in a header, and an instance that counts.
struct Scene {
    gateways: Vec<Gateway>,
    fixture: Fixture,
    _redis: Redis,
    _keys: FleetKeys,
}

impl Scene {
    async fn start(continuity: &str) -> anyhow::Result<Self> {
        Self::start_with(continuity, &[]).await
    }

    async fn start_with(continuity: &str, fixture: &[&str]) -> anyhow::Result<Self> {
        let (redis, keys) = (Redis::start().await?, FleetKeys::new()?);
        let fixture = Fixture::start_with("one", fixture).await?;
        let toml = format!(
            "{}continuity = {continuity:?}\n\n[worker]\n{}",
            settings_toml(&redis.url(), &[fixture.url()]),
            keys.toml(),
        );
        let settings = Settings::toml(toml).users_by_header();
        Ok(Self {
            gateways: Gateway::fleet(3, &settings).await?,
            fixture,
            _redis: redis,
            _keys: keys,
        })
    }

    fn endpoints(&self) -> Vec<String> {
        let gateways = self.gateways.iter();
        gateways.map(|gateway| gateway.mcp_url("tools")).collect()
    }

    fn user(&self, name: &str) -> Sessionless {
        Sessionless::at(self.endpoints()).header(USER, name)
    }
}

/// A client whose requests go to the endpoints in turn, each with the same id.
#[derive(Clone)]
struct Sessionless {
    client: HttpClient,
    endpoints: Vec<String>,
    turn: usize,
    headers: Vec<(&'static str, String)>,
    /// Added to the `_meta` of each request.
    meta: Value,
}

impl Sessionless {
    fn at(endpoints: Vec<String>) -> Self {
        Self {
            client: HttpClient::default(),
            endpoints,
            turn: 0,
            headers: Vec::new(),
            meta: json!({}),
        }
    }

    /// With this header on every request.
    fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.retain(|(other, _)| *other != name);
        self.headers.push((name, value.to_owned()));
        self
    }

    fn without_header(mut self, name: &str) -> Self {
        self.headers.retain(|(other, _)| *other != name);
        self
    }

    /// The body of a request.
    fn body(&self, method: &str, mut params: Value) -> Value {
        let mut meta = self.meta.clone();
        for (name, value) in [
            ("protocolVersion", json!(REVISION)),
            (
                "clientCapabilities",
                json!({"elicitation": {}, "sampling": {}}),
            ),
            ("clientInfo", json!({"name": "continuity", "version": "1"})),
        ] {
            meta[format!("io.modelcontextprotocol/{name}")] = value;
        }
        params["_meta"] = meta;
        json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
    }

    /// The reply to a request at the next endpoint.
    async fn send(&mut self, body: &Value) -> anyhow::Result<Reply> {
        let url = &self.endpoints[self.turn % self.endpoints.len()];
        self.turn += 1;
        let method = body["method"].as_str().context("a method")?;
        let mut request = Request::post(url)
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .header("mcp-protocol-version", REVISION)
            .header("mcp-method", method);
        let named = ["name", "uri"].map(|member| body["params"][member].as_str());
        if let Some(name) = named.into_iter().flatten().next() {
            request = request.header("mcp-name", name);
        }
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        let request = request.body(Bytes::from(body.to_string()))?;
        self.client.send(request).await
    }

    async fn request(&mut self, method: &str, params: Value) -> anyhow::Result<Exchange> {
        let body = self.body(method, params);
        read_exchange(self.send(&body).await?, &body).await
    }

    async fn call(&mut self, tool: &str, arguments: Value) -> anyhow::Result<Exchange> {
        let params = json!({"name": tool, "arguments": arguments});
        self.request("tools/call", params).await
    }

    /// The result of `increment` in the session that the headers name.
    async fn increment(&mut self) -> anyhow::Result<Count> {
        Count::of(self.call("increment", json!({})).await?)
    }

    /// The count in the session that the argument names.
    async fn increment_in(&mut self, session: &str) -> anyhow::Result<Count> {
        let arguments = json!({"mooring_session": session});
        Count::of(self.call("increment", arguments).await?)
    }
}

/// What `increment` has returned.
#[derive(Debug)]
struct Count {
    number: u64,
    result: Value,
}

impl Count {
    fn of(exchange: Exchange) -> anyhow::Result<Self> {
        let result = exchange.response["result"].clone();
        let number = result["structuredContent"]["count"].as_u64();
        let number = number.with_context(|| format!("a count: {exchange:?}"))?;
        assert_eq!(result["resultType"], "complete", "{result}");
        Ok(Self { number, result })
    }

    /// What it says of a session that it began; null if it began none.
    fn session_note(&self) -> &Value {
        &self.result["_meta"][SESSION_NOTE]
    }

    fn texts(&self) -> String {
        self.result["content"].to_string()
    }
}
