//! What the load is sent through: nothing, a plain nginx hop, or the gateway in one of its ways to keep sessions, with
//! one thread, as nginx has one process, or with two. All of them stand before the same upstream, and run side by side
//! for the whole benchmark.

use anyhow::Context;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::nginx::Nginx;
use mooring_tests::redis::{Module, Redis};

use crate::cost::Cost;
use crate::load::Counting;
use crate::upstream;
use crate::wire::Target;

/// The gateway's MCP endpoint for the server `tools`.
pub(crate) const GATEWAY_PATH: &str = "/servers/tools/mcp";

/// One way from the client to the upstream.
#[derive(Debug)]
pub(crate) struct Arrangement {
    pub(crate) name: &'static str,
    pub(crate) target: Target,
    pub(crate) counting: Counting,
    hop: Hop,
}

#[derive(Debug)]
enum Hop {
    Direct,
    Nginx(Nginx),
    Gateway(Gateway),
    GatewayAndRedis(Gateway, Redis),
}

impl Arrangement {
    pub(crate) fn direct(upstream_port: u16) -> Self {
        Self {
            name: "direct",
            target: Target::local(upstream_port, upstream::PATH),
            counting: Counting::Own,
            hop: Hop::Direct,
        }
    }

    pub(crate) async fn nginx(upstream_port: u16) -> anyhow::Result<Self> {
        let nginx = Nginx::start(&[upstream_port])
            .await
            .context("start nginx")?;
        let port = port_of(&nginx.url(""))?;
        Ok(Self {
            name: "nginx, plain hop",
            target: Target::local(port, upstream::PATH),
            counting: Counting::Own,
            hop: Hop::Nginx(nginx),
        })
    }

    pub(crate) async fn redis(upstream_ports: &[u16]) -> anyhow::Result<Self> {
        Self::redis_with("mooring, affinity on, Redis", 1, upstream_ports).await
    }

    pub(crate) async fn redis_with_two_threads(upstream_ports: &[u16]) -> anyhow::Result<Self> {
        Self::redis_with("the same, two threads", 2, upstream_ports).await
    }

    async fn redis_with(
        name: &'static str,
        threads: usize,
        upstream_ports: &[u16],
    ) -> anyhow::Result<Self> {
        let arguments = ["--appendonly", "no", "--hash-max-listpack-value", "512"];
        let redis = Redis::start_with(Module::Loaded, &arguments)
            .await
            .context("start Redis")?;
        let gateway = gateway(&redis.url(), true, threads, upstream_ports).await?;
        Ok(Self {
            name,
            target: Target::local(gateway.port(), GATEWAY_PATH),
            counting: Counting::Own,
            hop: Hop::GatewayAndRedis(gateway, redis),
        })
    }

    pub(crate) async fn embedded(upstream_ports: &[u16]) -> anyhow::Result<Self> {
        let gateway = gateway("embedded", true, 1, upstream_ports).await?;
        Ok(Self {
            name: "mooring, affinity on, embedded",
            target: Target::local(gateway.port(), GATEWAY_PATH),
            counting: Counting::Own,
            hop: Hop::Gateway(gateway),
        })
    }

    pub(crate) async fn off(upstream_ports: &[u16]) -> anyhow::Result<Self> {
        let gateway = gateway("embedded", false, 1, upstream_ports).await?;
        Ok(Self {
            name: "mooring, affinity off",
            target: Target::local(gateway.port(), GATEWAY_PATH),
            counting: Counting::Shared,
            hop: Hop::Gateway(gateway),
        })
    }

    /// What the hop has cost so far, and what the Redis beside it has.
    pub(crate) fn cost(&mut self) -> anyhow::Result<(Cost, Cost)> {
        Ok(match &mut self.hop {
            Hop::Direct => (Cost::default(), Cost::default()),
            Hop::Nginx(nginx) => (Cost::of(nginx.process().id())?, Cost::default()),
            Hop::Gateway(gateway) => (Cost::of(gateway.process().id())?, Cost::default()),
            Hop::GatewayAndRedis(gateway, redis) => (
                Cost::of(gateway.process().id())?,
                Cost::of(redis.process().id())?,
            ),
        })
    }

    /// The URL of the Redis behind it, if there is one.
    pub(crate) fn redis_url(&self) -> Option<String> {
        match &self.hop {
            Hop::GatewayAndRedis(_, redis) => Some(redis.url()),
            _ => None,
        }
    }
}

async fn gateway(
    store: &str,
    is_kept: bool,
    threads: usize,
    upstream_ports: &[u16],
) -> anyhow::Result<Gateway> {
    let instances: Vec<String> = upstream_ports
        .iter()
        .map(|port| format!("http://127.0.0.1:{port}{}", upstream::PATH))
        .collect();
    // The debug forms of these are TOML: there is nothing to escape in them.
    let toml = format!(
        "[store]\nurl = {store:?}\n\n[worker]\nthreads = {threads}\n\n[affinity]\nenabled = {is_kept}\ninitializes_per_minute = 0\n\n\
         [[servers]]\nid = \"tools\"\nkind = \"http\"\ninstances = {instances:?}\n"
    );
    Gateway::start("bench", Settings::toml(toml))
        .await
        .context("start the gateway")
}

fn port_of(url: &str) -> anyhow::Result<u16> {
    let (_, port) = url.rsplit_once(':').context("a port in the URL")?;
    port.parse().context("the port")
}
