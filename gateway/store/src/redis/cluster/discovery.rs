//! Asks nodes for the layout of the cluster: at the start, every second, and at once after a redirection or a loss.
//!
//! Invariants: several nodes are asked at the same time, and the layout of the highest rank is believed. A layout of a lower
//! rank than that in use is not, unless no other was named for long: a cluster that was set up again begins with low epochs.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use mooring_settings::RedisAddress;
use rand::seq::IndexedRandom as _;
use tokio::time::{Instant, sleep, timeout};

use super::super::command_connection::CommandConnection;
use super::super::down_reason::{DownReason, timed_out};
use super::super::link_state::LinkState;
use super::super::log_in::{log_in, send};
use super::Shared;
use super::layout::{ClusterLayout, PRIMARIES_MAX};
use super::topology::Topology;
use crate::lock::{lock, write};

/// How often the layout is asked for while nothing happens.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// Pause after a layout, so that redirections and losses do not ask more often.
pub(super) const ASK_AGAIN_AFTER: Duration = Duration::from_millis(50);
/// How many primaries are asked.
const ASKED: usize = 3;
/// How long layouts of lower rank only are named before one is used.
const LOWER_AFTER: Duration = Duration::from_secs(30);

impl ClusterLayout {
    /// The addresses of the primaries, each once.
    pub(super) fn primaries(&self) -> Vec<&RedisAddress> {
        let mut primaries: Vec<&RedisAddress> = Vec::new();
        for range in &self.ranges {
            if !primaries.contains(&&range.primary) {
                primaries.push(&range.primary);
            }
        }
        primaries
    }
}

impl Shared {
    /// Keeps the topology as the cluster is.
    pub(super) async fn follow_layout(self: Arc<Self>) {
        let mut lower_since = None;
        loop {
            let pause = ASK_EVERY.mul_f64(rand::random_range(0.75..1.25));
            // Whatever it is that asks, gateways that saw the same do not ask at the same moment.
            drop(timeout(pause, self.wanted.notified()).await);
            sleep(ASK_AGAIN_AFTER.mul_f64(rand::random_range(0.0..1.0))).await;
            match self.ask_for_layout().await {
                Ok(layout) => {
                    self.note_problem(None);
                    self.use_layout(&layout, &mut lower_since);
                }
                Err(down) => self.note_problem(Some(down)),
            }
            sleep(ASK_AGAIN_AFTER).await;
        }
    }

    /// The layout of the highest rank among those that a few primaries have, or if none answers the nodes of the URL.
    pub(super) async fn ask_for_layout(&self) -> Result<ClusterLayout, DownReason> {
        let topology = self.topology();
        let up = topology
            .nodes
            .iter()
            .filter_map(|node| match &*node.link.watch().borrow() {
                LinkState::Up(open) => {
                    Some((node.endpoint.address.clone(), open.connection.clone()))
                }
                LinkState::Reconnecting | LinkState::Down(_) => None,
            });
        let up: Vec<(RedisAddress, CommandConnection)> = up.collect();
        let asked = up
            .sample(&mut rand::rng(), ASKED)
            .map(|(address, connection)| self.ask_over(connection, address));
        let answers = join_all(asked).await;
        if let Some(layout) = highest(answers.into_iter().filter_map(Result::ok)) {
            return Ok(layout);
        }
        let known = topology.nodes.iter().map(|node| &*node.endpoint);
        let asked = self
            .cluster
            .seeds()
            .iter()
            .chain(known)
            .map(async |endpoint| {
                let connection = log_in(endpoint, self.command_timeout, false).await;
                let answer = match connection {
                    Ok(connection) => self.ask_first(&connection, &endpoint.address).await,
                    Err(down) => Err(down),
                };
                answer.map_err(|down| (endpoint.address.to_string(), down))
            });
        let (mut layouts, mut problems) = (Vec::new(), Vec::new());
        for answer in join_all(asked).await {
            match answer {
                Ok(layout) => layouts.push(layout),
                Err(problem) => problems.push(problem),
            }
        }
        highest(layouts.into_iter()).ok_or_else(|| DownReason::of_all(problems))
    }

    /// The same over a connection without other commands, which shows whether this user may send ASKING: it is needed only
    /// when a slot moves.
    async fn ask_first(
        &self,
        connection: &CommandConnection,
        address: &RedisAddress,
    ) -> Result<ClusterLayout, DownReason> {
        let layout = self.ask_over(connection, address).await?;
        let command = redis::cmd("ASKING");
        let asking = timeout(self.command_timeout, send(connection, &command));
        asking.await.unwrap_or_else(|_| Err(timed_out()))?;
        Ok(layout)
    }

    async fn ask_over(
        &self,
        connection: &CommandConnection,
        address: &RedisAddress,
    ) -> Result<ClusterLayout, DownReason> {
        let asking = ClusterLayout::ask(connection, &self.cluster, address);
        let layout = timeout(self.command_timeout, asking).await;
        let layout = layout.unwrap_or_else(|_| Err(timed_out()))?;
        let primaries = layout.primaries().len();
        if primaries > PRIMARIES_MAX {
            let problem = format!("its cluster has {primaries} primaries (limit {PRIMARIES_MAX})");
            return Err(DownReason::Unreachable(problem));
        }
        Ok(layout)
    }

    fn use_layout(&self, layout: &ClusterLayout, lower_since: &mut Option<Instant>) {
        let mut current = write(&self.topology);
        if layout.rank() < current.rank {
            let since = *lower_since.get_or_insert_with(Instant::now);
            if since.elapsed() < LOWER_AFTER {
                return;
            }
        }
        *lower_since = None;
        let next = Topology::of(layout, &current, |address| self.start_node(address));
        if next.is_same(&current) && next.rank == current.rank {
            return;
        }
        if !next.has_nodes_of(&current) {
            let primaries: Vec<_> = layout.primaries().iter().map(ToString::to_string).collect();
            tracing::info!(
                primaries = primaries.join(", "),
                epoch = layout.epoch,
                "the primaries of the redis cluster have changed"
            );
        }
        self.replace_topology(&mut current, next);
    }

    fn note_problem(&self, problem: Option<DownReason>) {
        let mut known = lock(&self.problem);
        if *known == problem {
            return;
        }
        match &problem {
            Some(problem) => {
                tracing::warn!(?problem, "the layout of the redis cluster is not known")
            }
            None => tracing::info!("the layout of the redis cluster is known again"),
        }
        *known = problem;
    }
}

fn highest(layouts: impl Iterator<Item = ClusterLayout>) -> Option<ClusterLayout> {
    layouts.max_by_key(ClusterLayout::rank)
}
