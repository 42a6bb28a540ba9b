//! What the faults are done to: three gateways, each behind a link of its own to Redis; Redis with a replica that can take
//! over; one upstream server. Gateways and Redis have a wall clock each that can be set.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::network_link::NetworkLink;
use mooring_tests::redis::{Module, Redis};
use mooring_tests::wait;
use mooring_tests::wall_clock::WallClock;

use super::witness::{Lives, Witness};

/// Gateways of the fleet.
pub(super) const GATEWAYS: usize = 3;
/// What a connection for wake-ups carries, and no other.
const WAKE_UPS: &[u8] = b"WORKER.WAIT";
/// How long a replica may take to follow, and to take over.
const FOLLOWS_WITHIN: Duration = Duration::from_secs(60);

/// A gateway, and what it reaches Redis by.
pub(super) struct LinkedGateway {
    pub(super) number: usize,
    pub(super) gateway: Gateway,
    pub(super) link: Arc<NetworkLink>,
    lives: Lives,
}

/// The running parts. Fields are dropped in this order.
pub(super) struct Arrangement {
    pub(super) gateways: Vec<LinkedGateway>,
    pub(super) stores: StorePair,
    pub(super) lives: Lives,
    pub(super) gateway_clock: WallClock,
    pub(super) redis_clock: Arc<WallClock>,
    pub(super) witness: Witness,
}

/// The primary and its replica, which change places.
pub(super) struct StorePair {
    primary: Redis,
    replica: Redis,
    links: Vec<Arc<NetworkLink>>,
    _clock: Arc<WallClock>,
}

impl Arrangement {
    pub(super) async fn start() -> anyhow::Result<Self> {
        let lives: Lives = Arc::new((0..GATEWAYS).map(|_| AtomicU64::new(0)).collect());
        let witness = Witness::start(Arc::clone(&lives)).await?;
        let (gateway_clock, redis_clock) = (WallClock::new()?, Arc::new(WallClock::new()?));
        let mut stores = StorePair::start(&redis_clock).await?;
        let mut gateways = Vec::new();
        for number in 0..GATEWAYS {
            let port = stores.primary.port();
            let link = witness.run(NetworkLink::to(port, WAKE_UPS)).await?;
            let link = Arc::new(link);
            stores.links.push(Arc::clone(&link));
            // In the mode `fallback` gateways serve sessions without asking each other while Redis is away.
            let toml = format!(
                "[store]\nurl = {:?}\non_unavailable = \"fail\"\n\n\
                 [affinity]\nenabled = true\ninitializes_per_minute = 0\n\n\
                 [[servers]]\nid = \"tools\"\nkind = \"http\"\ninstances = [{:?}]\n",
                link.redis_url(),
                witness.url(),
            );
            let mut settings = Settings::toml(toml);
            for (name, value) in gateway_clock.environment() {
                settings = settings.env(name, &value);
            }
            let gateway = Gateway::start(&format!("gateway-{}", number + 1), settings).await?;
            gateways.push(LinkedGateway {
                number,
                gateway,
                link,
                lives: Arc::clone(&lives),
            });
        }
        Ok(Self {
            gateways,
            stores,
            lives,
            gateway_clock,
            redis_clock,
            witness,
        })
    }

    pub(super) fn endpoints(&self) -> Vec<String> {
        let url = |linked: &LinkedGateway| linked.gateway.mcp_url("tools");
        self.gateways.iter().map(url).collect()
    }
}

impl LinkedGateway {
    /// SIGKILL.
    pub(super) fn kill(&mut self) -> anyhow::Result<()> {
        self.lives[self.number].fetch_add(1, Ordering::SeqCst);
        self.gateway.process().kill_now()
    }

    /// Starts it again.
    pub(super) async fn start_again(&mut self) -> anyhow::Result<()> {
        self.gateway.restart().await?;
        self.lives[self.number].fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

impl StorePair {
    async fn start(clock: &Arc<WallClock>) -> anyhow::Result<Self> {
        let (primary, replica) = tokio::try_join!(start_redis(clock), start_redis(clock))?;
        let stores = Self {
            primary,
            replica,
            links: Vec::new(),
            _clock: Arc::clone(clock),
        };
        stores.follow()?;
        stores.until_followed().await?;
        Ok(stores)
    }

    pub(super) fn primary(&mut self) -> &mut Redis {
        &mut self.primary
    }

    /// How often the primary was asked for a turn since it was started.
    pub(super) fn turns_entered(&self) -> anyhow::Result<u64> {
        crate::reaping::calls(&self.primary, "session.enter")
    }

    /// The primary is killed, and started again.
    pub(super) async fn restart(&mut self) -> anyhow::Result<()> {
        self.primary.process().kill_now()?;
        self.primary.restart().await
    }

    /// The primary hands over to its replica.
    pub(super) async fn hand_over(&mut self) -> anyhow::Result<()> {
        self.until_followed().await?;
        let port = self.lead_to_replica();
        self.primary
            .cli(&["FAILOVER", "TO", "127.0.0.1", &port.to_string()])?;
        wait::until_true("the replica to take over", FOLLOWS_WITHIN, async || {
            Ok(self.replica.cli(&["ROLE"])?.contains("master"))
        })
        .await?;
        std::mem::swap(&mut self.primary, &mut self.replica);
        Ok(())
    }

    /// The primary is killed, and its replica promoted.
    pub(super) async fn promote(&mut self) -> anyhow::Result<()> {
        self.until_followed().await?;
        self.primary.process().kill_now()?;
        self.lead_to_replica();
        self.replica.cli(&["REPLICAOF", "NO", "ONE"])?;
        std::mem::swap(&mut self.primary, &mut self.replica);
        self.replica.restart().await?;
        self.follow()
    }

    fn lead_to_replica(&self) -> u16 {
        let port = self.replica.port();
        for link in &self.links {
            link.lead_to(port);
        }
        port
    }

    fn follow(&self) -> anyhow::Result<()> {
        let port = self.primary.port().to_string();
        self.replica.cli(&["REPLICAOF", "127.0.0.1", &port])?;
        Ok(())
    }

    async fn until_followed(&self) -> anyhow::Result<()> {
        wait::until_true("the replica to follow", FOLLOWS_WITHIN, async || {
            Ok(self.primary.cli(&["WAIT", "1", "500"])? == "1")
        })
        .await
        .context("replication")
    }
}

/// Redis that syncs its append-only file at every write, so that a killed one has no excuse to forget.
async fn start_redis(clock: &WallClock) -> anyhow::Result<Redis> {
    let mut command = clock.command();
    command.push("redis-server".to_owned());
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    Redis::start_by(&command, Module::Loaded, &["--appendfsync", "always"]).await
}
