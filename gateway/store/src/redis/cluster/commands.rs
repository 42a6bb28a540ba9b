//! Sends a command to the primary that serves its key, or to every primary.
//!
//! Invariants: no caller waits longer than the command timeout, redirections included, of which a command follows a bounded
//! number. A redirected command was not executed, so it is sent again whatever it is; one whose reply was lost is, once, if
//! a repetition changes nothing more.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use mooring_session::key_slot::slot_of;
use redis::{Arg, Cmd, Value};
use tokio::time::{Instant, sleep};

use super::super::command_connection::{CommandConnection, ReplyCallback};
use super::super::link_state::{Resend, SlotState};
use super::layout::Redirection;
use super::node::Node;
use super::{Cluster, Shared};
use crate::error::{NotReady, StoreError, UnavailableReason};

/// Most redirections of one command. A slot that moves twice at the same moment takes four.
const REDIRECTIONS_MAX: usize = 8;
/// Pause before a command is sent again whose slot is served by no node, or is moving.
const LATER: Duration = Duration::from_millis(20);

impl Cluster {
    pub(in super::super) async fn send(
        &self,
        command: &Cmd,
        resend: Resend,
    ) -> Result<Value, StoreError> {
        self.shared.send(command, resend).await
    }

    /// The replies in the order of the nodes; none if no node is known.
    pub(in super::super) async fn send_to_all(
        &self,
        command: &Cmd,
        resend: Resend,
    ) -> Vec<Result<Value, StoreError>> {
        let topology = self.shared.topology();
        let sent = (topology.nodes.iter()).map(|node| self.shared.send_to(node, command, resend));
        join_all(sent).await
    }

    pub(in super::super) fn send_unawaited(&self, command: &Cmd, on_reply: ReplyCallback) {
        let topology = self.shared.topology();
        match topology.owner(slot_of(key_of(command))) {
            // A redirection is an error like others, after which the caller sends it again.
            Some(node) => node.link.send_unawaited(command, on_reply),
            None => on_reply(None),
        }
    }

    pub(in super::super) fn connection_number(&self, key: &str) -> u64 {
        let topology = self.shared.topology();
        let owner = topology.owner(slot_of(key.as_bytes()));
        owner.map_or(0, |node| node.link.number())
    }

    pub(in super::super) async fn dial_separate(
        &self,
        key: &str,
    ) -> Result<CommandConnection, StoreError> {
        let node = self.shared.owner(slot_of(key.as_bytes()))?;
        node.link.dial_separate().await
    }
}

impl Shared {
    async fn send(&self, command: &Cmd, resend: Resend) -> Result<Value, StoreError> {
        let slot = slot_of(key_of(command));
        let deadline = self.deadline();
        // A command that is sent again must have the time for its reply: without one its connection is given up.
        let again_until = deadline - self.command_timeout / 2;
        let mut importer = None;
        let (mut redirections, mut was_lost) = (0, false);
        loop {
            let (node, state) = match importer.take() {
                Some(node) => (node, SlotState::Importing),
                None => (self.owner(slot)?, SlotState::Served),
            };
            let reply = match node.link.send_once(command, state, deadline).await {
                Ok(reply) => reply,
                Err(StoreError::Away(UnavailableReason::Dropped))
                    if resend == Resend::Once && !was_lost =>
                {
                    was_lost = true;
                    self.wanted.notify_one();
                    continue;
                }
                Err(error) => return Err(self.failure_at(&node, error, resend)),
            };
            let address = &node.endpoint.address;
            let Some(redirection) = Redirection::of(&reply, &self.cluster, address) else {
                return Ok(reply);
            };
            redirections += 1;
            match redirection {
                Redirection::Later if Instant::now() < again_until => {
                    self.wanted.notify_one();
                    sleep(LATER).await;
                }
                Redirection::Moved(address) if redirections <= REDIRECTIONS_MAX => {
                    self.redirected_to(&address, Some(slot));
                    self.wanted.notify_one();
                }
                Redirection::Ask(address) if redirections <= REDIRECTIONS_MAX => {
                    importer = Some(self.redirected_to(&address, None));
                }
                _ => return Ok(reply),
            }
        }
    }

    /// Sends a keyless command to one node.
    pub(super) async fn send_to(
        &self,
        node: &Arc<Node>,
        command: &Cmd,
        resend: Resend,
    ) -> Result<Value, StoreError> {
        let sent = node.link.send(command, resend).await;
        sent.map_err(|error| self.failure_at(node, error, resend))
    }

    /// The primary of a slot.
    pub(super) fn owner(&self, slot: u16) -> Result<Arc<Node>, StoreError> {
        let topology = self.topology();
        if let Some(node) = topology.owner(slot) {
            return Ok(Arc::clone(node));
        }
        self.wanted.notify_one();
        if topology.nodes.is_empty() || self.is_down() {
            return Err(StoreError::Away(UnavailableReason::Disconnected));
        }
        let problem = format!("of slot {slot}, which no node serves,");
        Err(StoreError::NotReady(NotReady::PrimaryAway(problem.into())))
    }

    /// What a command failed with at a node. The store as a whole is away only while every primary is.
    fn failure_at(&self, node: &Node, error: StoreError, resend: Resend) -> StoreError {
        let StoreError::Away(reason) = error else {
            return error;
        };
        self.wanted.notify_one();
        if self.is_down() {
            return error;
        }
        match reason {
            UnavailableReason::Dropped | UnavailableReason::TimedOut if resend == Resend::Never => {
                node.lost()
            }
            _ => node.away(),
        }
    }
}

/// The key of a command: its first argument.
fn key_of(command: &Cmd) -> &[u8] {
    match command.args_iter().nth(1) {
        Some(Arg::Simple(key)) => key,
        _ => b"",
    }
}
