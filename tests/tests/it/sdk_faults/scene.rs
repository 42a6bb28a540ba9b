//! Three gateways on one Redis behind a load balancer of connections, and what can happen to them.

use std::time::Duration;

use anyhow::Context as _;
use mooring_tests::balancer::Balancer;
use mooring_tests::fixture::{Fixture, stdio_command};
use mooring_tests::fleet_keys::FleetKeys;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::redis::{Module, Redis};
use mooring_tests::reply_proxy::ReplyProxy;
use mooring_tests::wait;
use mooring_tests::wall_clock::WallClock;

use crate::owned::rig::unique;
use crate::reported_losses::kill_children;
use crate::vanishing_host::VanishingHost;

const GATEWAYS: usize = 3;
const HOUR_MS: i64 = 3_600_000;
/// How long the clock stays wrong: some calls of each session, and a few beats.
const WRONG_FOR: Duration = Duration::from_secs(2);
const FOLLOWS_WITHIN: Duration = Duration::from_secs(30);

/// What happens while calls are in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    GatewayKilled,
    GatewayStopped,
    AllRolled,
    InstanceKilled,
    HostVanished,
    RedisFailedOver,
    ClockStepped,
}

impl Fault {
    pub(super) const ALL: [Self; 7] = [
        Self::GatewayKilled,
        Self::GatewayStopped,
        Self::AllRolled,
        Self::InstanceKilled,
        Self::HostVanished,
        Self::RedisFailedOver,
        Self::ClockStepped,
    ];

    /// As it is called in `docs/compatibility.md`.
    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::GatewayKilled => "gateway killed",
            Self::GatewayStopped => "gateway stopped",
            Self::AllRolled => "all gateways rolled",
            Self::InstanceKilled => "instance killed",
            Self::HostVanished => "host vanished",
            Self::RedisFailedOver => "Redis failed over",
            Self::ClockStepped => "clock stepped",
        }
    }

    /// The kinds of servers whose sessions it meets.
    pub(super) const fn kinds(self) -> &'static [&'static str] {
        match self {
            // A process has no host of its own.
            Self::HostVanished => &["http"],
            _ => &["http", "stdio"],
        }
    }
}

/// The fleet. Fields are dropped in this order.
pub(super) struct Scene {
    gateways: Vec<Gateway>,
    balancer: Balancer,
    /// Where every session is at first.
    home: Fixture,
    home_host: VanishingHost,
    /// The other instance of the same server, which is down at first.
    other: Fixture,
    /// The argument by which the processes of the stdio server are found.
    child: String,
    primary: Redis,
    replica: Option<Redis>,
    /// In front of Redis, where it fails over.
    proxy: Option<ReplyProxy>,
    clock: WallClock,
    _keys: FleetKeys,
}

impl Scene {
    pub(super) async fn start(fault: Fault) -> anyhow::Result<Self> {
        let (clock, keys) = (WallClock::new()?, FleetKeys::new()?);
        let primary = start_redis(&clock).await?;
        let (replica, proxy) = match fault {
            Fault::RedisFailedOver => (
                Some(Redis::start_replica(&primary, Module::Loaded, &[]).await?),
                Some(ReplyProxy::before_redis(primary.port()).await?),
            ),
            _ => (None, None),
        };
        let store = proxy
            .as_ref()
            .map_or_else(|| primary.url(), ReplyProxy::url);
        let (home, mut other) = (
            Fixture::start("home").await?,
            Fixture::start("other").await?,
        );
        other.process().kill_now()?;
        let home_host = VanishingHost::of(&home).await?;
        let home_url = match fault {
            Fault::HostVanished => home_host.url(),
            _ => home.url(),
        };
        let child = unique("sdk-faults");
        let toml = format!(
            "[store]\nurl = {store:?}\n\n[affinity]\nenabled = true\n\n[worker]\n{}\n\
             [[servers]]\nid = \"http\"\nkind = \"http\"\ninstances = [{home_url:?}, {:?}]\n\n\
             [[servers]]\nid = \"stdio\"\nkind = \"stdio\"\ncommand = {:?}\n",
            keys.toml(),
            other.url(),
            stdio_command(&child, None, &[])?,
        );
        let mut settings = Settings::toml(toml);
        for (name, value) in clock.environment() {
            settings = settings.env(name, &value);
        }
        let gateways = Gateway::fleet(GATEWAYS, &settings).await?;
        let balancer = Balancer::start(gateways.iter().map(Gateway::port).collect()).await?;
        if matches!(fault, Fault::GatewayKilled | Fault::GatewayStopped) {
            // Every call is then at the gateway that ends.
            balancer.prefer(Some(0));
        }
        Ok(Self {
            gateways,
            balancer,
            home,
            home_host,
            other,
            child,
            primary,
            replica,
            proxy,
            clock,
            _keys: keys,
        })
    }

    pub(super) fn url(&self, server: &str) -> String {
        self.balancer.url(&format!("/servers/{server}/mcp"))
    }

    pub(super) async fn inflict(&mut self, fault: Fault) -> anyhow::Result<()> {
        match fault {
            Fault::GatewayKilled => self.gateways[0].process().kill_now(),
            Fault::GatewayStopped => self.gateways[0].process().begin_to_terminate(),
            Fault::AllRolled => {
                for gateway in &mut self.gateways {
                    gateway.process().terminate().await?;
                    gateway.restart().await?;
                }
                Ok(())
            }
            Fault::InstanceKilled => {
                self.other.restart().await?;
                self.home.process().kill_now()?;
                kill_children(&self.child).await
            }
            Fault::HostVanished => {
                self.other.restart().await?;
                self.home_host.vanish().await
            }
            Fault::RedisFailedOver => self.fail_over().await,
            Fault::ClockStepped => {
                for ahead_ms in [HOUR_MS, 0] {
                    self.clock.set(ahead_ms)?;
                    tokio::time::sleep(WRONG_FOR).await;
                }
                Ok(())
            }
        }
    }

    async fn fail_over(&self) -> anyhow::Result<()> {
        let (replica, proxy) = (self.replica.as_ref())
            .zip(self.proxy.as_ref())
            .context("a replica")?;
        wait::until_true("the replica to follow", FOLLOWS_WITHIN, async || {
            Ok(self.primary.cli(&["WAIT", "1", "1000"])? == "1")
        })
        .await?;
        let port = replica.port();
        proxy.lead_to(port);
        self.primary
            .cli(&["FAILOVER", "TO", "127.0.0.1", &port.to_string()])?;
        Ok(())
    }
}

async fn start_redis(clock: &WallClock) -> anyhow::Result<Redis> {
    let mut command = clock.command();
    command.push("redis-server".to_owned());
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    Redis::start_by(&command, Module::Loaded, &[]).await
}
