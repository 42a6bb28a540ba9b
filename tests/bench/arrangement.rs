//! What the load is sent through: nothing, a plain nginx hop, or the gateway in one of its ways to keep sessions, with
//! one thread, as nginx has one process, or with two. All of them stand before the same upstream, and run side by side
//! for the whole benchmark.

use anyhow::Context;
use mooring_tests::gateway::{Gateway, Settings, has_setting};
use mooring_tests::nginx::Nginx;
use mooring_tests::redis::{Module, Redis};

use crate::cost::{Cost, StoreCost};
use crate::load::Counting;
use crate::upstream;
use crate::wire::Target;

/// The gateway's MCP endpoint for the server `tools`.
pub(crate) const GATEWAY_PATH: &str = "/servers/tools/mcp";

/// How a gateway keeps sessions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keeping {
    pub(crate) is_in_redis: bool,
    pub(crate) concurrency: Concurrency,
    pub(crate) delegation: Delegation,
}

/// Whether calls of a session run one after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Concurrency {
    Serial,
    Parallel,
}

/// Whether turns are delegated to gateways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delegation {
    /// As by default.
    On,
    Off,
}

/// The setting, and the variable that turns delegations off.
const DELEGATION: &str = "affinity.delegation_ms";
const DELEGATION_VARIABLE: &str = "MOORING_AFFINITY_DELEGATION_MS";

impl Delegation {
    /// Both, or only the default where this build has no delegations.
    pub(crate) fn of_this_build() -> anyhow::Result<Vec<Self>> {
        let is_known = has_setting(DELEGATION)?;
        Ok(if is_known {
            vec![Self::On, Self::Off]
        } else {
            vec![Self::On]
        })
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::On => "default",
            Self::Off => "without delegations",
        }
    }

    pub(crate) fn set(self, settings: Settings) -> Settings {
        match self {
            Self::On => settings,
            Self::Off => settings.env(DELEGATION_VARIABLE, "0"),
        }
    }
}

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
        let redis = start_redis().await?;
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

    /// The way with one thread that keeps sessions like this.
    pub(crate) async fn keeping(
        name: &'static str,
        keeping: Keeping,
        upstream_ports: &[u16],
    ) -> anyhow::Result<Self> {
        let redis = match keeping.is_in_redis {
            true => Some(start_redis().await?),
            false => None,
        };
        let store = redis
            .as_ref()
            .map_or_else(|| "embedded".to_owned(), Redis::url);
        let mut toml = gateway_toml(&store, true, 1, upstream_ports);
        if keeping.concurrency == Concurrency::Parallel {
            toml.push_str("concurrency = \"parallel\"\n");
        }
        let settings = keeping.delegation.set(Settings::toml(toml));
        let gateway = Gateway::start("bench", settings)
            .await
            .context("start the gateway")?;
        Ok(Self {
            name,
            target: Target::local(gateway.port(), GATEWAY_PATH),
            counting: Counting::Own,
            hop: match redis {
                Some(redis) => Hop::GatewayAndRedis(gateway, redis),
                None => Hop::Gateway(gateway),
            },
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

    /// What the Redis beside the hop has done so far; nothing if there is none.
    pub(crate) fn store_cost(&self) -> anyhow::Result<StoreCost> {
        match &self.hop {
            Hop::GatewayAndRedis(_, redis) => StoreCost::of(redis),
            _ => Ok(StoreCost::default()),
        }
    }

    /// The URL of the Redis behind it, if there is one.
    pub(crate) fn redis_url(&self) -> Option<String> {
        match &self.hop {
            Hop::GatewayAndRedis(_, redis) => Some(redis.url()),
            _ => None,
        }
    }
}

/// A Redis with the module that writes nothing to disk.
pub(crate) async fn start_redis() -> anyhow::Result<Redis> {
    let arguments = ["--appendonly", "no", "--hash-max-listpack-value", "512"];
    Redis::start_with(Module::Loaded, &arguments)
        .await
        .context("start Redis")
}

async fn gateway(
    store: &str,
    is_kept: bool,
    threads: usize,
    upstream_ports: &[u16],
) -> anyhow::Result<Gateway> {
    let toml = gateway_toml(store, is_kept, threads, upstream_ports);
    Gateway::start("bench", Settings::toml(toml))
        .await
        .context("start the gateway")
}

/// The configuration file of a gateway. It ends inside the table of the server `tools`.
pub(crate) fn gateway_toml(
    store: &str,
    is_kept: bool,
    threads: usize,
    upstream_ports: &[u16],
) -> String {
    let instances: Vec<String> = upstream_ports
        .iter()
        .map(|port| format!("http://127.0.0.1:{port}{}", upstream::PATH))
        .collect();
    // The debug forms of these are TOML: there is nothing to escape in them.
    format!(
        "[store]\nurl = {store:?}\n\n[worker]\nthreads = {threads}\n\n[affinity]\nenabled = {is_kept}\ninitializes_per_minute = 0\n\n\
         [[servers]]\nid = \"tools\"\nkind = \"http\"\ninstances = {instances:?}\n"
    )
}

fn port_of(url: &str) -> anyhow::Result<u16> {
    let (_, port) = url.rsplit_once(':').context("a port in the URL")?;
    port.parse().context("the port")
}
