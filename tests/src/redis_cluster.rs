//! A Redis Cluster of three primaries and three replicas, all with the module: processes on loopback, joined by commands.
//!
//! A replica of a primary that is gone is promoted, however long it has not heard of it. Slots of the others are served
//! meanwhile.

use std::time::Duration;

use anyhow::{Context, bail, ensure};

use crate::port::free_port;
use crate::redis::{Module, Redis};
use crate::wait;

/// The slots of each primary, in the order of the nodes.
pub const RANGES: [(u16, u16); 3] = [(0, 5460), (5461, 10922), (10923, 16383)];

/// With less, a busy machine would promote replicas of primaries that are alive.
const NODE_TIMEOUT_MS: &str = "5000";
/// The same where a primary is to be replaced soon, as docs/operating-redis.md advises.
const SHORT_NODE_TIMEOUT_MS: &str = "2000";
/// What CLUSTER INFO says when every slot is served.
const ALL_SERVED: &[&str] = &["cluster_state:ok", "cluster_slots_ok:16384"];
/// For all that takes a few seconds on an idle machine.
const SETTLED_WITHIN: Duration = Duration::from_secs(60);
/// How many keys of a slot are moved at once.
const KEYS_AT_ONCE: &str = "5";

/// The nodes: a primary for each range, then a replica for each primary, then what was added.
#[derive(Debug)]
pub struct RedisCluster {
    /// In that order, whatever their roles are by now.
    pub nodes: Vec<Redis>,
    program: String,
    arguments: Vec<String>,
    /// The longest lease of a turn, after a first quiet time that is short; none if the arguments have it.
    lease_max_ms: Option<&'static str>,
}

impl RedisCluster {
    /// Starts the nodes, and waits until every slot is served and every replica follows. Turns are granted almost at once.
    pub async fn start() -> anyhow::Result<Self> {
        let mut cluster = Self::start_by(
            "redis-server",
            &["--appendonly", "no", "--mooring.turn-lease-max-ms", "100"],
        )
        .await?;
        cluster.lease_max_ms = Some("2000");
        for node in &cluster.nodes {
            cluster.set_lease_max(node)?;
        }
        Ok(cluster)
    }

    /// The same by this program, with further arguments.
    pub async fn start_by(program: &str, arguments: &[&str]) -> anyhow::Result<Self> {
        let mut cluster = Self {
            nodes: Vec::new(),
            lease_max_ms: None,
            program: program.to_owned(),
            arguments: arguments
                .iter()
                .map(|&argument| argument.to_owned())
                .collect(),
        };
        let mut buses = Vec::new();
        for _ in 0..2 * RANGES.len() {
            buses.push(cluster.start_node().await?);
        }
        cluster.join(&buses).await?;
        Ok(cluster)
    }

    /// Starts a node that knows no other. Answers the port of its bus.
    async fn start_node(&mut self) -> anyhow::Result<String> {
        let bus = free_port()?.to_string();
        let mut arguments = vec![
            "--cluster-enabled",
            "yes",
            "--cluster-port",
            &bus,
            "--cluster-node-timeout",
            NODE_TIMEOUT_MS,
            "--cluster-replica-validity-factor",
            "0",
            "--cluster-require-full-coverage",
            "no",
        ];
        arguments.extend(self.arguments.iter().map(String::as_str));
        let node = Redis::start_by(&[&self.program], Module::Loaded, &arguments).await?;
        self.nodes.push(node);
        Ok(bus)
    }

    fn set_lease_max(&self, node: &Redis) -> anyhow::Result<()> {
        if let Some(ms) = self.lease_max_ms {
            node.cli(&["CONFIG", "SET", "mooring.turn-lease-max-ms", ms])?;
        }
        Ok(())
    }

    async fn join(&self, buses: &[String]) -> anyhow::Result<()> {
        let [first, others @ ..] = self.nodes.as_slice() else {
            bail!("no nodes");
        };
        // While none knows another, its epoch can be chosen.
        for (place, (from, to)) in RANGES.into_iter().enumerate() {
            let node = self.node(place)?;
            let epoch = (place + 1).to_string();
            node.cli(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch])?;
            let (from, to) = (from.to_string(), to.to_string());
            node.cli(&["CLUSTER", "ADDSLOTSRANGE", &from, &to])?;
        }
        for (node, bus) in others.iter().zip(buses.iter().skip(1)) {
            let port = node.port().to_string();
            first.cli(&["CLUSTER", "MEET", "127.0.0.1", &port, bus])?;
        }
        self.until_known("all nodes know each other").await?;
        for place in 0..RANGES.len() {
            let id = self.node(place)?.cli(&["CLUSTER", "MYID"])?;
            let replica = self.replica_of(place)?;
            replica.cli(&["CLUSTER", "REPLICATE", &id])?;
        }
        for place in 0..RANGES.len() {
            self.until_follows(place).await?;
        }
        self.until_served("slots are served").await
    }

    /// Waits until the replica of this primary follows it.
    async fn until_follows(&self, place: usize) -> anyhow::Result<()> {
        let (primary, replica) = (self.node(place)?, self.replica_of(place)?);
        wait::until_true("a replica to follow", SETTLED_WITHIN, async || {
            let info = replica.cli(&["INFO", "replication"])?;
            let of = primary.cli(&["INFO", "replication"])?;
            Ok(info.contains("master_link_status:up") && of.contains("connected_slaves:1"))
        })
        .await
    }

    /// Waits until every node says that every slot is served.
    async fn until_served(&self, what: &str) -> anyhow::Result<()> {
        wait::until_true(what, SETTLED_WITHIN, async || {
            for node in &self.nodes {
                let info = node.cli(&["CLUSTER", "INFO"])?;
                if !ALL_SERVED.iter().all(|line| info.contains(line)) {
                    return Ok(false);
                }
            }
            Ok(true)
        })
        .await
    }

    /// Waits until every node has exchanged messages with every other.
    async fn until_known(&self, what: &str) -> anyhow::Result<()> {
        wait::until_true(what, SETTLED_WITHIN, async || {
            for node in &self.nodes {
                let known = node.cli(&["CLUSTER", "NODES"])?;
                if known.lines().count() != self.nodes.len() || known.contains("handshake") {
                    return Ok(false);
                }
            }
            Ok(true)
        })
        .await
    }

    /// Adds a primary without slots, and waits until all nodes know it. Answers its place.
    pub async fn add_primary(&mut self) -> anyhow::Result<usize> {
        let bus = self.start_node().await?;
        let place = self.nodes.len() - 1;
        let node = self.node(place)?;
        self.set_lease_max(node)?;
        let port = node.port().to_string();
        self.node(0)?
            .cli(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus])?;
        self.until_known("all nodes know the new one").await?;
        self.until_served("the new node to take part").await?;
        Ok(place)
    }

    /// The node at a place.
    pub fn node(&self, place: usize) -> anyhow::Result<&Redis> {
        self.nodes.get(place).context("a node")
    }

    /// The nodes that are primaries at first.
    #[must_use]
    pub fn primaries(&self) -> &[Redis] {
        self.nodes.get(..RANGES.len()).unwrap_or_default()
    }

    /// The replica that follows the primary at this place.
    pub fn replica_of(&self, place: usize) -> anyhow::Result<&Redis> {
        self.node(RANGES.len() + place)
    }

    /// The URL of the store, which names two of the nodes.
    #[must_use]
    pub fn url(&self) -> String {
        let seeds = self.nodes.iter().take(2);
        let hosts: Vec<_> = seeds
            .map(|node| format!("127.0.0.1:{}", node.port()))
            .collect();
        format!("redis+cluster://{}", hosts.join(","))
    }

    /// A hash tag of which every key is at the primary of this place, and its slot.
    pub fn tag_at(&self, place: usize) -> anyhow::Result<(String, u16)> {
        let (first, last) = RANGES.get(place).copied().context("a range")?;
        for n in 0..1_000 {
            let tag = format!("{{t{n}}}");
            let slot = self.slot_of(&tag)?;
            if (first..=last).contains(&slot) {
                return Ok((tag, slot));
            }
        }
        bail!("no tag of a thousand has a slot there")
    }

    /// The slot of a key.
    pub fn slot_of(&self, key: &str) -> anyhow::Result<u16> {
        Ok(self.node(0)?.cli(&["CLUSTER", "KEYSLOT", key])?.parse()?)
    }

    /// The place among the first primaries whose range has this slot.
    pub fn place_of(&self, slot: u16) -> anyhow::Result<usize> {
        let has_slot = |(first, last): &(u16, u16)| (*first..=*last).contains(&slot);
        RANGES
            .iter()
            .position(has_slot)
            .context("a range with the slot")
    }

    /// Moves a slot key by key from the node at one place to that at another.
    pub fn move_slot(&self, slot: u16, from: usize, to: usize) -> anyhow::Result<()> {
        let (source, target) = (self.node(from)?, self.node(to)?);
        let source_id = source.cli(&["CLUSTER", "MYID"])?;
        let target_id = target.cli(&["CLUSTER", "MYID"])?;
        let slot = slot.to_string();
        target.cli(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source_id])?;
        source.cli(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target_id])?;
        let port = target.port().to_string();
        loop {
            let keys = source.cli(&["CLUSTER", "GETKEYSINSLOT", &slot, KEYS_AT_ONCE])?;
            let keys: Vec<&str> = keys.split_whitespace().collect();
            if keys.is_empty() {
                break;
            }
            let mut migrate = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
            migrate.extend(keys);
            let moved = source.cli(&migrate)?;
            ensure!(moved == "OK" || moved == "NOKEY", "MIGRATE: {moved}");
        }
        // The target first: of a key that is nowhere yet, it must not say that it is the source's.
        for node in [target, source] {
            node.cli(&["CLUSTER", "SETSLOT", &slot, "NODE", &target_id])?;
        }
        Ok(())
    }

    /// Kills the primary at this place, and waits until its replica has been promoted and every slot is served.
    pub async fn fail_over(&mut self, place: usize) -> anyhow::Result<()> {
        self.set_node_timeout(SHORT_NODE_TIMEOUT_MS, None)?;
        self.kill_primary(place)?;
        self.until_replaced(place).await?;
        self.set_node_timeout(NODE_TIMEOUT_MS, Some(place))
    }

    /// Kills the primary at this place. Its replica is not promoted before a command to it has timed out.
    pub fn kill_primary(&mut self, place: usize) -> anyhow::Result<()> {
        let primary = self.nodes.get_mut(place).context("a node")?;
        primary.process().kill_now()
    }

    /// Waits until the replica of the killed primary at this place has been promoted and every slot is served.
    pub async fn until_replaced(&self, place: usize) -> anyhow::Result<()> {
        let replica = self.replica_of(place)?;
        wait::until_true("the replica's promotion", SETTLED_WITHIN, async || {
            let info = replica.cli(&["CLUSTER", "INFO"])?;
            Ok(replica.cli(&["ROLE"])?.starts_with("master")
                && ALL_SERVED.iter().all(|line| info.contains(line)))
        })
        .await
    }

    fn set_node_timeout(&self, ms: &str, killed: Option<usize>) -> anyhow::Result<()> {
        for (place, node) in self.nodes.iter().enumerate() {
            if killed != Some(place) {
                node.cli(&["CONFIG", "SET", "cluster-node-timeout", ms])?;
            }
        }
        Ok(())
    }

    /// Waits until the replica of this primary has all that it has said so far.
    pub async fn until_replicated(&self, place: usize) -> anyhow::Result<()> {
        let primary = self.node(place)?;
        wait::until_true("the replica to be in step", SETTLED_WITHIN, async || {
            let info = primary.cli(&["INFO", "replication"])?;
            let offset = |name: &str| {
                let at = info.find(name)? + name.len();
                let digits = info
                    .get(at..)?
                    .split(|c: char| !c.is_ascii_digit())
                    .next()?;
                digits.parse::<u64>().ok()
            };
            let (said, has) = (offset("master_repl_offset:"), offset(",offset="));
            Ok(said.zip(has).is_some_and(|(said, has)| has >= said))
        })
        .await
    }
}
