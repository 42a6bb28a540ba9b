//! How many active sessions a store has, and where they are bound.

use std::collections::BTreeMap;

use mooring_session::names::WorkerId;

/// The counts of the sessions of one family under a store's prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionCounts {
    /// Whether every session was counted: an index that is being rebuilt counts only those that it has read.
    pub complete: bool,
    /// The active sessions, by the server in their keys; of MCP sessions, which have none, all under an empty name.
    pub active: Vec<(Box<str>, u64)>,
    /// The bindings of active sessions.
    pub instances: Vec<InstanceCount>,
    /// The bindings of active sessions that a worker owns.
    pub owners: Vec<OwnerCount>,
}

/// The bindings to one instance.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InstanceCount {
    /// The server.
    pub server: Box<str>,
    /// The instance.
    pub instance: Box<str>,
    /// How many.
    pub bindings: u64,
}

/// The bindings of one owner.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OwnerCount {
    /// The owner.
    pub worker: WorkerId,
    /// Whether it is alive.
    pub alive: bool,
    /// How many.
    pub bindings: u64,
}

impl SessionCounts {
    /// The counts of several servers, each of which has a part of the sessions.
    pub(crate) fn sum(parts: Vec<Self>) -> Self {
        let complete = parts.iter().all(|part| part.complete);
        let (mut active, mut instances, mut owners) =
            (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        for part in parts {
            for (server, sessions) in part.active {
                *active.entry(server).or_default() += sessions;
            }
            for count in part.instances {
                *instances.entry((count.server, count.instance)).or_default() += count.bindings;
            }
            for count in part.owners {
                let (alive, bindings) = owners.entry(count.worker).or_insert((false, 0));
                *alive |= count.alive;
                *bindings += count.bindings;
            }
        }
        let instance_of = |((server, instance), bindings)| InstanceCount {
            server,
            instance,
            bindings,
        };
        let owner_of = |(worker, (alive, bindings))| OwnerCount {
            worker,
            alive,
            bindings,
        };
        Self {
            complete,
            active: active.into_iter().collect(),
            instances: instances.into_iter().map(instance_of).collect(),
            owners: owners.into_iter().map(owner_of).collect(),
        }
    }

    /// All active sessions.
    #[must_use]
    pub fn active_sessions(&self) -> u64 {
        self.active.iter().map(|(_, sessions)| sessions).sum()
    }
}
