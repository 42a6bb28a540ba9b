//! A Redis Cluster: every primary has the module, and serves the sessions of its slots.
//!
//! [`layout`] has what nodes say of the cluster, and [`topology`] which [`node`] serves a slot. [`discovery`] asks for the layout and follows its changes. [`commands`] sends commands, by redirections where the
//! layout has changed; [`events`] waits for events at every primary; [`listing`] merges their pages.
//!
//! Invariants: a node serves only while it says that it is a primary, and has the module; while one is away, only commands
//! on keys of its slots fail, and none is served from memory in its place unless all are away.

mod commands;
mod discovery;
mod events;
mod layout;
mod listing;
mod node;
mod topology;

use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use futures_util::future::try_join_all;
use mooring_settings::{ModuleUse, RedisAddress, RedisCluster, RedisEndpoint};
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use self::events::JoinedPath;
use self::node::Node;
use self::topology::Topology;
use super::dial::{addresses, way_word};
use super::down_reason::DownReason;
use super::link_state::LinkState;
use crate::error::OpenError;
use crate::lock::{lock, read, write};
use crate::status::RedisServerView;

/// The primaries of a cluster, and the tasks that follow it, which end with this handle.
#[derive(Debug)]
pub(super) struct Cluster {
    shared: Arc<Shared>,
    tasks: [JoinHandle<()>; 2],
}

#[derive(Debug)]
struct Shared {
    cluster: RedisCluster,
    /// What the URL names, without credentials.
    address: String,
    prefix: Box<str>,
    command_timeout: Duration,
    topology: RwLock<Arc<Topology>>,
    /// The runtime of nodes. A redirection may be met by a thread that serves, whose tasks end with it.
    runtime: Handle,
    /// Changes with the nodes.
    nodes_changed: watch::Sender<()>,
    /// Whether any primary is up.
    state: watch::Sender<LinkState>,
    /// The layout is asked for now.
    wanted: Notify,
    /// Why no layout was found when it was asked for last.
    problem: Mutex<Option<DownReason>>,
    paths: Mutex<Vec<JoinedPath>>,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl Cluster {
    /// Asks the nodes of the URL for the others and connects to all primaries, at the same time. Then follows the cluster
    /// in the background.
    ///
    /// # Errors
    /// A node is reachable but is none of a cluster, refuses this client, or lacks what this gateway needs.
    pub(super) async fn open(
        cluster: &RedisCluster,
        prefix: &str,
        command_timeout: Duration,
    ) -> Result<Self, OpenError> {
        let shared = Arc::new(Shared {
            address: format!("{} (cluster)", addresses(cluster.seeds())),
            cluster: cluster.clone(),
            prefix: prefix.into(),
            command_timeout,
            topology: RwLock::default(),
            runtime: Handle::current(),
            nodes_changed: watch::Sender::default(),
            state: watch::Sender::new(LinkState::Reconnecting),
            wanted: Notify::new(),
            problem: Mutex::default(),
            paths: Mutex::default(),
        });
        shared.connect_first().await?;
        shared.show_state(&shared.topology());
        let tasks = [
            tokio::spawn(Arc::clone(&shared).follow_layout()),
            tokio::spawn(Arc::clone(&shared).follow_links()),
        ];
        Ok(Self { shared, tasks })
    }

    pub(super) fn address(&self) -> &str {
        &self.shared.address
    }

    pub(super) fn command_timeout(&self) -> Duration {
        self.shared.command_timeout
    }

    pub(super) fn watch(&self) -> watch::Receiver<LinkState> {
        self.shared.state.subscribe()
    }

    pub(super) fn view(&self) -> RedisServerView {
        let topology = self.shared.topology();
        let primaries: Vec<_> = topology.nodes.iter().map(|node| node.view()).collect();
        let up: Vec<&str> = primaries
            .iter()
            .filter(|primary| primary.problem.is_none())
            .map(|primary| primary.address.as_str())
            .collect();
        let mut problems: Vec<String> = primaries
            .iter()
            .filter_map(|primary| Some((&primary.address, primary.problem.as_ref()?)))
            .map(|(address, problem)| format!("{address}: {problem}"))
            .collect();
        problems.extend(lock(&self.shared.problem).as_ref().map(DownReason::problem));
        RedisServerView {
            discovery: "cluster",
            way: way_word(ModuleUse::Required),
            address: (!up.is_empty()).then(|| up.join(", ")),
            problem: (!problems.is_empty()).then(|| problems.join("; ")),
            primaries,
        }
    }
}

impl Shared {
    async fn connect_first(&self) -> Result<(), OpenError> {
        let layout = match self.ask_for_layout().await {
            Ok(layout) => layout,
            Err(down @ DownReason::Unreachable(_)) => {
                *lock(&self.problem) = Some(down);
                return Ok(());
            }
            Err(down) => return Err(down.at(&self.address)),
        };
        let opening = layout.primaries().into_iter().map(|address| {
            let endpoint = self.endpoint_at(address);
            Node::open(endpoint, &self.prefix, self.command_timeout)
        });
        let opened = try_join_all(opening).await?;
        let opened_at = |address: &RedisAddress| {
            let known = opened.iter().find(|node| node.endpoint.address == *address);
            known.cloned().unwrap_or_else(|| self.start_node(address))
        };
        let topology = Topology::of(&layout, &Topology::default(), opened_at);
        self.replace_topology(&mut write(&self.topology), topology);
        Ok(())
    }

    fn topology(&self) -> Arc<Topology> {
        Arc::clone(&read(&self.topology))
    }

    fn replace_topology(&self, current: &mut Arc<Topology>, next: Topology) {
        let has_same_nodes = next.has_nodes_of(current);
        *current = Arc::new(next);
        if !has_same_nodes {
            self.nodes_changed.send_replace(());
        }
    }

    /// The node at an address that a redirection names.
    fn redirected_to(&self, address: &RedisAddress, slot: Option<u16>) -> Arc<Node> {
        let mut current = write(&self.topology);
        let known = current.node(address).cloned();
        let node = known.unwrap_or_else(|| self.start_node(address));
        let next = match slot {
            Some(slot) => current.with_owner(slot, &node),
            None => {
                node.note_import();
                current.with_node(&node)
            }
        };
        if !next.is_same(&current) {
            self.replace_topology(&mut current, next);
        }
        node
    }

    fn start_node(&self, address: &RedisAddress) -> Arc<Node> {
        let endpoint = self.endpoint_at(address);
        let _entered = self.runtime.enter();
        Node::start(endpoint, &self.prefix, self.command_timeout)
    }

    fn endpoint_at(&self, address: &RedisAddress) -> RedisEndpoint {
        let (host, port) = address.host().unwrap_or_default();
        self.cluster.node_at(host, port)
    }

    /// Shows the state of the whole, and asks for the layout where a link is lost.
    async fn follow_links(self: Arc<Self>) {
        let mut nodes_changed = self.nodes_changed.subscribe();
        loop {
            nodes_changed.borrow_and_update();
            let topology = self.topology();
            let mut links: Vec<_> = topology
                .nodes
                .iter()
                .map(|node| node.link.watch())
                .collect();
            if !self.show_state(&topology) {
                self.wanted.notify_one();
            }
            drop(topology);
            let any_link = async {
                let changes = links.iter_mut().map(|link| Box::pin(link.changed()));
                let changes: Vec<_> = changes.collect();
                match changes.is_empty() {
                    true => std::future::pending().await,
                    false => futures_util::future::select_all(changes).await.0.is_ok(),
                }
            };
            let is_orderly = tokio::select! {
                is_orderly = any_link => is_orderly,
                changed = nodes_changed.changed() => changed.is_ok(),
            };
            if !is_orderly {
                // A node has gone whose place in the topology is not taken yet.
                sleep(discovery::ASK_AGAIN_AFTER).await;
            }
        }
    }

    /// Returns whether all primaries are up.
    fn show_state(&self, topology: &Topology) -> bool {
        let links = topology.nodes.iter().map(|node| {
            let state = node.link.watch().borrow().clone();
            (node.endpoint.address.to_string(), state)
        });
        let (mut up, mut problems, mut connecting) = (None, Vec::new(), 0_usize);
        let mut count = 0_usize;
        for (address, state) in links {
            match state {
                LinkState::Up(connection) => {
                    count += 1;
                    up.get_or_insert(connection);
                }
                LinkState::Reconnecting => connecting += 1,
                LinkState::Down(down) => problems.push((address, down)),
            }
        }
        show_primaries(count, topology.nodes.len() - count);
        let next = match up {
            Some(connection) => LinkState::Up(connection),
            None if connecting > 0 => LinkState::Reconnecting,
            None => {
                problems.extend(
                    lock(&self.problem)
                        .clone()
                        .map(|down| ("layout".to_owned(), down)),
                );
                LinkState::Down(DownReason::of_all(problems))
            }
        };
        self.state.send_if_modified(|state| {
            let is_same = match (&*state, &next) {
                (LinkState::Up(one), LinkState::Up(other)) => one.number == other.number,
                (LinkState::Reconnecting, LinkState::Reconnecting) => true,
                (LinkState::Down(one), LinkState::Down(other)) => one == other,
                _ => false,
            };
            if !is_same {
                *state = next;
            }
            !is_same
        });
        count == topology.nodes.len()
    }

    fn is_down(&self) -> bool {
        matches!(&*self.state.borrow(), LinkState::Down(_))
    }

    /// When a command that begins now is given up.
    fn deadline(&self) -> Instant {
        Instant::now() + self.command_timeout
    }
}

fn show_primaries(up: usize, away: usize) {
    for (state, count) in [("up", up), ("away", away)] {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        metrics::gauge!("mooring_store_primaries", "state" => state).set(f64::from(count));
    }
}
