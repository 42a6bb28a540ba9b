//! How many active sessions a store has, and where they are bound.

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
    /// All active sessions.
    #[must_use]
    pub fn active_sessions(&self) -> u64 {
        self.active.iter().map(|(_, sessions)| sessions).sum()
    }
}
