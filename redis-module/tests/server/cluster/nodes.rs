//! A cluster of three primaries and three replicas: processes on loopback, joined by commands.

use std::time::Duration;

use anyhow::Context;
use mooring_tests::port::free_port;
use mooring_tests::redis::{Module, Redis};
use mooring_tests::wait;

use super::super::resp::Connection;

const JOINED_WITHIN: Duration = Duration::from_secs(20);

/// The slots of each primary, in the order of the nodes.
const RANGES: [(u16, u16); 3] = [(0, 5460), (5461, 10922), (10923, 16383)];

/// The nodes: a primary for each range, then a replica for each primary.
pub(super) struct Cluster {
    pub(super) nodes: Vec<Redis>,
}

impl Cluster {
    /// Starts the nodes by this program and waits until every slot is served and every replica follows.
    pub(super) async fn start(program: &str) -> anyhow::Result<Self> {
        let mut nodes = Vec::new();
        let mut buses = Vec::new();
        for _ in 0..2 * RANGES.len() {
            let bus = free_port()?.to_string();
            let arguments = [
                "--cluster-enabled",
                "yes",
                "--cluster-port",
                &bus,
                "--cluster-node-timeout",
                "1000",
                "--appendonly",
                "no",
                // The shortest time in which a new primary grants only turns that are claimed again.
                "--mooring.turn-lease-max-ms",
                "100",
            ];
            nodes.push(Redis::start_by(&[program], Module::Loaded, &arguments).await?);
            buses.push(bus);
        }
        let cluster = Self { nodes };
        cluster.join(&buses).await?;
        Ok(cluster)
    }

    async fn join(&self, buses: &[String]) -> anyhow::Result<()> {
        for (node, bus) in self.nodes.iter().zip(buses).skip(1) {
            let port = node.port().to_string();
            self.nodes[0].cli(&["CLUSTER", "MEET", "127.0.0.1", &port, bus])?;
        }
        for (place, (first, last)) in RANGES.into_iter().enumerate() {
            let mut c = Connection::open(&self.nodes[place])?;
            c.run(&format!("CLUSTER SET-CONFIG-EPOCH {}", place + 1))?;
            c.run(&format!("CLUSTER ADDSLOTSRANGE {first} {last}"))?;
        }
        self.all("that all nodes know each other", |c| {
            Ok(c.show("CLUSTER INFO")?.contains("cluster_known_nodes:6"))
        })
        .await?;
        for (replica, primary) in self.nodes[RANGES.len()..].iter().zip(&self.nodes) {
            let id = primary.cli(&["CLUSTER", "MYID"])?;
            replica.cli(&["CLUSTER", "REPLICATE", &id])?;
        }
        self.all("that slots are served and replicas follow", |c| {
            let replication = c.show("INFO replication")?;
            let is_linked = replication.contains("role:master")
                && replication.contains("connected_slaves:1")
                || replication.contains("master_link_status:up");
            Ok(is_linked && c.show("CLUSTER INFO")?.contains("cluster_state:ok"))
        })
        .await
    }

    /// Waits until `holds` at every node.
    async fn all(
        &self,
        what: &str,
        holds: impl Fn(&mut Connection) -> anyhow::Result<bool>,
    ) -> anyhow::Result<()> {
        for node in &self.nodes {
            let mut c = Connection::open(node)?;
            wait::until_true(what, JOINED_WITHIN, async || holds(&mut c)).await?;
        }
        Ok(())
    }

    pub(super) fn primaries(&self) -> &[Redis] {
        &self.nodes[..RANGES.len()]
    }

    /// The replica that follows the primary at this place.
    pub(super) fn replica_of(&self, place: usize) -> &Redis {
        &self.nodes[RANGES.len() + place]
    }

    /// A hash tag of which every key is at the primary of this place.
    pub(super) fn tag_at(&self, place: usize) -> anyhow::Result<(String, u16)> {
        let mut c = Connection::open(&self.nodes[place])?;
        let (first, last) = RANGES[place];
        for n in 0..1_000 {
            let tag = format!("{{t{n}}}");
            let slot = u16::try_from(c.run(&format!("CLUSTER KEYSLOT {tag}"))?.integer())?;
            if (first..=last).contains(&slot) {
                return Ok((tag, slot));
            }
        }
        None.context("no tag of a thousand has a slot there")
    }
}
