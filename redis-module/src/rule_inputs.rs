//! The inputs of a rule besides the record and the request: time, settings, and the state of this node.

use std::cell::OnceCell;

use mooring_session::time::{Monotonic, Timestamp};
use mooring_session::workers::{Workers, WorkersAt};
use mooring_session::{Liveness, NoIndex, Node, PrincipalSessions, Tuning};

use crate::module::Module;
use crate::moment::Moment;
use crate::node::NodeView;
use crate::node_time::NodeTime;
use crate::settings;

/// The inputs of a rule besides the record and the request.
pub(crate) struct RuleInputs<'a> {
    now: Timestamp,
    floor: u64,
    tuning: Tuning,
    workers: WorkersNow<'a>,
    node: Option<NodeView<'a>>,
}

/// The liveness of all workers at the moment of the command. Most commands do not need it, so the monotonic clock is
/// read on the first query.
struct WorkersNow<'a> {
    workers: &'a Workers,
    time: &'a NodeTime,
    known: OnceCell<WorkersAt<'a>>,
}

impl<'a> WorkersNow<'a> {
    fn known(&self) -> &WorkersAt<'a> {
        self.known.get_or_init(|| self.workers.at(self.time.now()))
    }
}

impl Liveness for WorkersNow<'_> {
    fn is_alive(&self, worker: &str) -> bool {
        self.known().is_alive(worker)
    }

    fn is_draining(&self, worker: &str) -> bool {
        self.known().is_draining(worker)
    }

    fn address(&self, worker: &str) -> Option<&str> {
        self.known().address(worker)
    }
}

impl<'a> RuleInputs<'a> {
    /// What this node knows at the moment of a command.
    pub(crate) fn at(module: &'a Module, moment: &Moment<'a>) -> Self {
        Self {
            floor: module.floor,
            node: Some(NodeView::of(module, *moment)),
            ..Self::of(&module.workers, &module.time, moment.now)
        }
    }

    /// The same with what the principal holds.
    pub(crate) fn with_held(mut self, held: Option<PrincipalSessions>) -> Self {
        self.node = self.node.map(|node| node.with_held(held));
        self
    }

    /// The same from the parts of a [`Module`] that a command has borrowed, for a command that assigns no numbers and
    /// places nothing.
    pub(crate) fn of(workers: &'a Workers, time: &'a NodeTime, now: Timestamp) -> Self {
        Self {
            now,
            floor: 0,
            tuning: settings::tuning(),
            workers: WorkersNow {
                workers,
                time,
                known: OnceCell::new(),
            },
            node: None,
        }
    }

    /// This node's clock, at the moment of the liveness.
    pub(crate) fn monotonic(&self) -> Monotonic {
        self.workers.known().mono()
    }

    /// The inputs in the form that rules take.
    pub(crate) fn context(&self) -> mooring_session::Context<'_> {
        let node: &dyn Node = match &self.node {
            Some(node) => node,
            None => &NoIndex,
        };
        mooring_session::Context {
            now: self.now,
            floor: self.floor,
            tuning: &self.tuning,
            workers: &self.workers,
            node,
        }
    }
}
