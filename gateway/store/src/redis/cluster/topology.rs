//! The primaries in use, and which of them serves each slot. A value of its own for each change.

use std::sync::Arc;

use mooring_session::key_slot::SLOTS;
use mooring_settings::RedisAddress;

use super::layout::ClusterLayout;
use super::node::Node;

/// In place of the number of a primary, of a slot that has none.
const UNSERVED: u16 = u16::MAX;

/// The primaries and their slots.
#[derive(Clone, Debug)]
pub(super) struct Topology {
    pub(super) nodes: Vec<Arc<Node>>,
    /// For each slot the number of its primary.
    owners: Vec<u16>,
    /// The rank of the layout that it was made from.
    pub(super) rank: (bool, u64),
}

impl Default for Topology {
    fn default() -> Self {
        Self {
            nodes: Vec::new(),
            owners: vec![UNSERVED; usize::from(SLOTS)],
            rank: (false, 0),
        }
    }
}

impl Topology {
    /// The topology of a layout, with nodes that `node_at` gives. Nodes that import slots are kept.
    pub(super) fn of(
        layout: &ClusterLayout,
        before: &Self,
        mut start: impl FnMut(&RedisAddress) -> Arc<Node>,
    ) -> Self {
        let mut topology = Self {
            rank: layout.rank(),
            ..Self::default()
        };
        for range in &layout.ranges {
            let node = topology.node(&range.primary).cloned();
            let node = node.or_else(|| before.node(&range.primary).cloned());
            let node = node.unwrap_or_else(|| start(&range.primary));
            let owner = topology.number_of(&node);
            let (first, last) = (usize::from(range.first), usize::from(range.last));
            if let Some(owners) = topology.owners.get_mut(first..=last) {
                owners.fill(owner);
            }
        }
        for node in &before.nodes {
            if node.is_importing() {
                topology.number_of(node);
            }
        }
        topology
    }

    /// The same where this node serves the slot.
    pub(super) fn with_owner(&self, slot: u16, node: &Arc<Node>) -> Self {
        let mut topology = self.clone();
        let number = topology.number_of(node);
        if let Some(owner) = topology.owners.get_mut(usize::from(slot)) {
            *owner = number;
        }
        topology
    }

    /// The same with this node, whether or not it serves a slot.
    pub(super) fn with_node(&self, node: &Arc<Node>) -> Self {
        let mut topology = self.clone();
        topology.number_of(node);
        topology
    }

    /// The primary of a slot.
    pub(super) fn owner(&self, slot: u16) -> Option<&Arc<Node>> {
        let number = self.owners.get(usize::from(slot))?;
        self.nodes.get(usize::from(*number))
    }

    /// The node at an address.
    pub(super) fn node(&self, address: &RedisAddress) -> Option<&Arc<Node>> {
        self.nodes
            .iter()
            .find(|node| node.endpoint.address == *address)
    }

    /// What names a node in a place between two pages: its lowest slot, which stays while primaries are replaced, or its
    /// address if it serves none yet.
    pub(super) fn names(&self) -> Vec<String> {
        let name = |(number, node): (usize, &Arc<Node>)| {
            let lowest = self
                .owners
                .iter()
                .position(|owner| usize::from(*owner) == number);
            lowest.map_or_else(
                || node.endpoint.address.to_string(),
                |slot| slot.to_string(),
            )
        };
        self.nodes.iter().enumerate().map(name).collect()
    }

    /// Whether both have the same nodes and slots.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.owners == other.owners && self.has_nodes_of(other)
    }

    /// Whether both have the same nodes, in the same order.
    pub(super) fn has_nodes_of(&self, other: &Self) -> bool {
        let mut pairs = self.nodes.iter().zip(&other.nodes);
        self.nodes.len() == other.nodes.len() && pairs.all(|(one, other)| Arc::ptr_eq(one, other))
    }

    /// The number of a node, which is added if it is new.
    fn number_of(&mut self, node: &Arc<Node>) -> u16 {
        let known = self.nodes.iter().position(|known| Arc::ptr_eq(known, node));
        let number = known.unwrap_or_else(|| {
            self.nodes.push(Arc::clone(node));
            self.nodes.len() - 1
        });
        u16::try_from(number).unwrap_or(UNSERVED)
    }
}
