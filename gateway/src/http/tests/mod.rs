//! The routes as a value: every request is a call of the router, with the store in memory and an upstream server in this
//! process. What needs processes, a fleet or Redis is tested in `tests/`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]

mod admin;
mod cost;
mod fake_upstream;
mod operators;
mod page;
mod refusals;
mod replies;
mod request_log;
mod rest;
mod times;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, LazyLock};

use axum::body::Body;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use mooring_identity::Peer;
use mooring_pipeline::policy::AccessPolicy;
use mooring_session::names::{Address, WorkerId};
use mooring_session::time::Millis;
use mooring_session::workers::{Beat, Drain};
use mooring_settings::{Environment, Flags, Settings};
use mooring_store::test_support::memory_store;
use serde_json::{Value, json};
use tempfile::TempDir;

use self::fake_upstream::FakeUpstream;
use super::{App, Routes, routes};
use crate::serve::application::{GatewayParts, assemble as assemble_app};

/// The metrics of all gateways: a process has one global recorder.
static METRICS: LazyLock<PrometheusHandle> = LazyLock::new(|| {
    let builder = PrometheusBuilder::new();
    let builder = builder
        .set_buckets(mooring_metrics::BUCKETS_SECONDS)
        .unwrap();
    builder.install_recorder().unwrap()
});

/// The routes of one gateway, and the two upstream servers behind it.
struct Gateway {
    app: Arc<App>,
    routes: Routes,
    a: FakeUpstream,
    b: FakeUpstream,
}

/// What was answered.
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    /// The length that its head says.
    length: Option<u64>,
    text: String,
}

impl Gateway {
    /// The servers `a` and `b`, `pair` of two instances, `serial` and, of two instances, `turns`, whose calls take turns, `timed` and `held` for what
    /// they are counted as, and `both`, a group of `a` and `b`.
    async fn start() -> Self {
        Self::start_with("").await
    }

    /// The same with more lines of the table `[listen]`.
    async fn start_with(listen: &str) -> Self {
        let (a, b) = (
            FakeUpstream::start("a").await,
            FakeUpstream::start("b").await,
        );
        let server_with = |id: &str, urls: &[&str], concurrency: &str| {
            let instances = json!(urls);
            format!(
                "[[servers]]\nid = \"{id}\"\nkind = \"http\"\naffinity = \"on\"\nconcurrency = \"{concurrency}\"\ninstances = {instances}\n"
            )
        };
        let server = |id: &str, urls: &[&str]| server_with(id, urls, "parallel");
        let toml = [
            "[default]\nserver = \"a\"\n[listen]\nbody_bytes_max = 1048576\n".to_owned(),
            "allowed_origins = [\"https://app.example\"]\n".to_owned(),
            listen.to_owned(),
            server("a", &[&a.url]),
            server("b", &[&b.url]),
            server("pair", &[&a.url, &b.url]),
            server_with("serial", &[&a.url], "serial"),
            server_with("turns", &[&a.url, &b.url], "serial"),
            server("timed", &[&a.url]),
            server("held", &[&a.url]),
            "[[servers]]\nid = \"both\"\nkind = \"group\"\nmembers = [\"a\", \"b\"]\n".to_owned(),
        ]
        .concat();
        let home = TempDir::new().unwrap();
        let settings = settings(&toml, home.path());
        let (store, worker) = (memory_store(), WorkerId::parse(b"w:1").unwrap());
        // Only a live worker's calls get turns.
        let beat = Beat {
            worker: worker.clone(),
            address: Address::parse(b"127.0.0.1:1").unwrap(),
            ttl: Millis::new(600_000),
            drain: Drain::Serving,
        };
        store.beat(&beat).await.unwrap();
        let parts = GatewayParts {
            store,
            worker,
            peers: None,
            ring: None,
            policy: Arc::new(AccessPolicy::of(&settings)),
            reloads: None,
        };
        let app = assemble_app(&settings, parts, METRICS.clone())
            .await
            .unwrap();
        Self {
            routes: routes(Arc::clone(&app)),
            app,
            a,
            b,
        }
    }

    /// Sends one request as it is, from a loopback address.
    async fn send(&self, request: Request<Body>) -> Response<Body> {
        let peer = Peer::at(SocketAddr::from((Ipv4Addr::LOCALHOST, 4_000)));
        self.routes.serve(peer, Arc::default(), request).await
    }

    /// POSTs a message of a session to the server.
    async fn post(&self, server: &str, session: Option<&str>, message: &Value) -> Answer {
        let request = post(server, session).body(Body::from(message.to_string()));
        Answer::read(self.send(request.unwrap()).await).await
    }

    /// The id of a session that was just begun at the server.
    async fn open(&self, server: &str) -> String {
        let params = json!({"protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"}});
        let answer = self
            .post(server, None, &request(0, "initialize", params))
            .await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
        answer.header("mcp-session-id").unwrap().to_owned()
    }

    /// Calls the tool `echo` in a session.
    async fn echo(&self, server: &str, session: &str, arguments: Value) -> Answer {
        self.call(server, session, "echo", arguments).await
    }

    async fn call(&self, server: &str, session: &str, tool: &str, arguments: Value) -> Answer {
        let params = json!({"name": tool, "arguments": arguments});
        self.post(server, Some(session), &request(7, "tools/call", params))
            .await
    }
}

impl Gateway {
    /// Calls a tool, and reads only the head of the reply.
    async fn begin_call(
        &self,
        server: &str,
        session: &str,
        tool: &str,
        arguments: Value,
    ) -> Response<Body> {
        let params = json!({"name": tool, "arguments": arguments});
        let message = request(7, "tools/call", params).to_string();
        let request = post(server, Some(session)).body(Body::from(message));
        self.send(request.unwrap()).await
    }
}

impl Answer {
    async fn read(response: Response<Body>) -> Self {
        let (head, body) = response.into_parts();
        let length = http_body::Body::size_hint(&body).exact();
        let body = body.collect().await.unwrap().to_bytes();
        Self {
            status: head.status,
            headers: head.headers,
            length,
            text: String::from_utf8(body.to_vec()).unwrap(),
        }
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    /// The code of the JSON-RPC error.
    fn error_code(&self) -> i64 {
        self.json()["error"]["code"].as_i64().unwrap()
    }

    /// The data of the events, each a message.
    fn events(&self) -> Vec<Value> {
        assert_eq!(self.header("content-type"), Some("text/event-stream"));
        let data = self
            .text
            .lines()
            .filter_map(|line| line.strip_prefix("data: "));
        data.map(|data| serde_json::from_str(data).unwrap())
            .collect()
    }
}

/// The settings in this text, whose user has this home.
fn settings(toml: &str, home: &Path) -> Settings {
    let config = home.join("mooring.toml");
    std::fs::write(&config, toml).unwrap();
    let environment = Environment::from_iter([("HOME", home)]);
    let flags = Flags {
        config: Some(config),
        ..Flags::default()
    };
    Settings::load(&environment, &flags).unwrap().settings
}

/// A POST to the server as a client makes it, short of its body.
fn post(server: &str, session: Option<&str>) -> http::request::Builder {
    let request = Request::builder()
        .method(Method::POST)
        .uri(format!("/servers/{server}/mcp"))
        .header("host", "localhost")
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", "2025-06-18");
    match session {
        Some(session) => request.header("mcp-session-id", session),
        None => request,
    }
}

fn request(id: u64, method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}
