//! What the stories are told with: a load balancer, three workers, and servers and clients of every transport.

use anyhow::Context;
use mooring_tests::client::HttpClient;
use mooring_tests::duplex::{Connection, DuplexSession};
use mooring_tests::fixture::{Fixture, stdio_command};
use mooring_tests::fleet_keys::FleetKeys;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::legacy::LegacySession;
use mooring_tests::nginx::Nginx;
use mooring_tests::redis::Redis;
use mooring_tests::session::{Exchange, McpSession};
use serde_json::{Value, json};

use crate::owned::rig::{Shape, owned_toml, stdio_toml, unique};

/// How the upstream servers are reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Upstream {
    StreamableHttp,
    Sse,
    Stdio,
}

/// Every kind of upstream.
pub(crate) const UPSTREAMS: [Upstream; 3] =
    [Upstream::StreamableHttp, Upstream::Sse, Upstream::Stdio];

/// How a user's session begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    StreamableHttp,
    Sse,
}

/// Every kind of client.
pub(crate) const TRANSPORTS: [Transport; 2] = [Transport::Sse, Transport::StreamableHttp];

/// Three workers behind a load balancer, in front of the upstream servers `server-A` and `server-B`.
pub(crate) struct Story {
    pub(crate) workers: Vec<Gateway>,
    pub(crate) balancer: Nginx,
    pub(crate) redis: Redis,
    pub(crate) client: HttpClient,
    _servers: Vec<Fixture>,
    _keys: FleetKeys,
}

impl Story {
    pub(crate) async fn begin(upstream: Upstream) -> anyhow::Result<Self> {
        let (redis, keys) = (Redis::start().await?, FleetKeys::new()?);
        let mut servers = Vec::new();
        if upstream != Upstream::Stdio {
            servers.push(Fixture::start("server-A").await?);
            servers.push(Fixture::start("server-B").await?);
        }
        let urls = |url: fn(&Fixture) -> String| servers.iter().map(url).collect::<Vec<_>>();
        let tools = match upstream {
            Upstream::StreamableHttp => {
                format!("kind = \"http\"\ninstances = {:?}", urls(Fixture::url))
            }
            Upstream::Sse => format!("kind = \"sse\"\ninstances = {:?}", urls(Fixture::sse_url)),
            Upstream::Stdio => stdio_toml(&stdio_command(&unique("server"), None, &[])?),
        };
        let toml = owned_toml(&redis, &keys, &tools, &Shape::default());
        let workers = Gateway::fleet(3, &Settings::toml(toml)).await?;
        let ports: Vec<u16> = workers.iter().map(Gateway::port).collect();
        Ok(Self {
            balancer: Nginx::start(&ports).await?,
            workers,
            redis,
            client: HttpClient::default(),
            _servers: servers,
            _keys: keys,
        })
    }

    /// A user starts a session through the load balancer.
    pub(crate) async fn user(&self, transport: Transport) -> anyhow::Result<User> {
        let url = |end: &str| self.balancer.url(&format!("/servers/tools/{end}"));
        Ok(match transport {
            Transport::Sse => User::Sse(LegacySession::open_at(&self.client, &url("sse")).await?),
            Transport::StreamableHttp => {
                User::StreamableHttp(McpSession::open(&self.client, &[url("mcp")]).await?)
            }
        })
    }
}

/// A user with a session.
pub(crate) enum User {
    Sse(LegacySession),
    StreamableHttp(McpSession),
}

/// Who answered a call, and the state that it saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) server: Value,
    pub(crate) upstream_session: Value,
}

impl User {
    pub(crate) async fn call(&mut self, tool: &str) -> anyhow::Result<Value> {
        let result = match self {
            Self::Sse(session) => session.call(tool, json!({})).await?,
            Self::StreamableHttp(session) => session.call(tool, json!({})).await?,
        };
        Ok(result["structuredContent"].clone())
    }

    /// `increment`, the tool that changes the state: its count.
    pub(crate) async fn start_task(&mut self) -> anyhow::Result<u64> {
        let state = self.call("increment").await?;
        state["count"].as_u64().context("a count")
    }

    /// `whoami`, the tool that tells which server and which session of it answers.
    pub(crate) async fn check_status(&mut self) -> anyhow::Result<Place> {
        let state = self.call("whoami").await?;
        Ok(Place {
            server: json!([state["instance"], state["pid"]]),
            upstream_session: state["session"].clone(),
        })
    }

    /// A call in which the server asks its user.
    pub(crate) async fn call_answering(
        &mut self,
        params: Value,
        answer: impl FnMut(&Value) -> anyhow::Result<Value>,
    ) -> anyhow::Result<Exchange> {
        match self {
            Self::Sse(session) => answering(session, params, answer).await,
            Self::StreamableHttp(session) => {
                session
                    .request_answering("tools/call", params, answer)
                    .await
            }
        }
    }
}

async fn answering<C: Connection>(
    session: &mut DuplexSession<C>,
    params: Value,
    answer: impl FnMut(&Value) -> anyhow::Result<Value>,
) -> anyhow::Result<Exchange> {
    session
        .request_answering("tools/call", params, answer)
        .await
}
