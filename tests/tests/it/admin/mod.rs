//! The operators' side of a fleet: over the admin API, by the commands, and in the audit lines, over Redis and the embedded
//! file.

mod acts;
mod command;
mod document;
mod reads;
mod terminal;
mod tools;

use std::path::PathBuf;

use anyhow::{Context, ensure};
use bytes::Bytes;
use http::{Method, Request, StatusCode};
use mooring_tests::client::HttpClient;
use mooring_tests::fixture::Fixture;
use mooring_tests::fleet_keys::FleetKeys;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::redis::Redis;
use mooring_tests::session::{McpSession, Opening};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::keyed::keyed_settings;

/// An origin whose pages may be MCP clients.
const LISTED_ORIGIN: &str = "https://listed.example";

/// Gateways in front of a server `orders` with two instances, and with the operators' tools at `tools`.
struct Scene {
    gateways: Vec<Gateway>,
    client: HttpClient,
    directory: TempDir,
    instances: [Fixture; 2],
    _redis: Option<Redis>,
    _keys: FleetKeys,
}

impl Scene {
    /// Two gateways over Redis.
    async fn over_redis() -> anyhow::Result<Self> {
        let redis = Redis::start().await?;
        Self::start(Some(redis), 2).await
    }

    /// One gateway over the embedded file.
    async fn embedded() -> anyhow::Result<Self> {
        Self::start(None, 1).await
    }

    async fn start(redis: Option<Redis>, count: usize) -> anyhow::Result<Self> {
        let (keys, directory) = (FleetKeys::new()?, TempDir::new()?);
        let instances = [Fixture::start("one").await?, Fixture::start("two").await?];
        let [one, two] = instances.each_ref().map(Fixture::url);
        let servers = format!(
            "[[servers]]\nid = \"orders\"\nkind = \"http\"\naffinity = \"on\"\ninstances = [{one:?}, {two:?}]\n\
             [[servers]]\nid = \"tools\"\nkind = \"admin\"\n"
        );
        let settings = match &redis {
            Some(redis) => keyed_settings(redis, &keys, &servers),
            None => Settings::toml(servers),
        };
        let settings = settings
            .users_by_header()
            .env("MOORING_LISTEN_ALLOWED_ORIGINS", LISTED_ORIGIN);
        let mut gateways = Vec::new();
        for number in 0..count {
            let settings = settings.clone().stderr(&log_file(&directory, number));
            gateways.push(Gateway::start(&format!("gateway-{number}"), settings).await?);
        }
        Ok(Self {
            gateways,
            client: HttpClient::default(),
            directory,
            instances,
            _redis: redis,
            _keys: keys,
        })
    }

    /// A session of this user that has called a tool, at the gateway with this number.
    async fn session(&self, gateway: usize, user: &str) -> anyhow::Result<McpSession> {
        let opening = Opening::default().header("x-mooring-user", user)?;
        let endpoint = self.gateways[gateway].mcp_url("orders");
        let mut session = McpSession::open_with(&self.client, &[endpoint], opening).await?;
        session.increment().await?;
        Ok(session)
    }

    /// Asks a gateway as a user with these roles.
    async fn ask(
        &self,
        gateway: usize,
        method: Method,
        path: &str,
        roles: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<(StatusCode, Value, Option<String>)> {
        let mut request = Request::builder()
            .method(method)
            .uri(self.gateways[gateway].url(path))
            .header("x-mooring-user", "olga")
            .header("x-mooring-roles", roles);
        if body.is_some() {
            request = request.header("content-type", "application/json");
        }
        let body = body.map(ToString::to_string).unwrap_or_default();
        let reply = self.client.send(request.body(Bytes::from(body))?).await?;
        let id = reply.header("x-request-id").map(str::to_owned);
        Ok((reply.status, reply.json().await?, id))
    }

    /// A GET that has to succeed.
    async fn get(&self, gateway: usize, path: &str) -> anyhow::Result<Value> {
        let (status, answer, _) = self.ask(gateway, Method::GET, path, "admin", None).await?;
        ensure!(status == StatusCode::OK, "{path}: {status}: {answer}");
        Ok(answer)
    }

    /// An act that has to succeed, and the id of its request.
    async fn act(
        &self,
        gateway: usize,
        path: &str,
        body: Value,
    ) -> anyhow::Result<(Value, String)> {
        let asked = self.ask(gateway, Method::POST, path, "admin", Some(&body));
        let (status, answer, id) = asked.await?;
        ensure!(status == StatusCode::OK, "{path}: {status}: {answer}");
        Ok((answer, id.context("X-Request-Id")?))
    }

    fn log(&self, gateway: usize) -> String {
        std::fs::read_to_string(log_file(&self.directory, gateway)).unwrap_or_default()
    }
}

fn log_file(directory: &TempDir, gateway: usize) -> PathBuf {
    directory.path().join(format!("{gateway}.log"))
}

/// The digests of the listed sessions.
fn digests(list: &Value) -> Vec<String> {
    let sessions = list["sessions"].as_array().into_iter().flatten();
    let digests = sessions.filter_map(|session| session["session"].as_str());
    digests.map(str::to_owned).collect()
}

fn no_preview() -> Value {
    json!({})
}
