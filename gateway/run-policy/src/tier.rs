//! The isolation tiers and layers, which every outcome contains.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The isolation tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// Every layer, or nothing runs.
    Strict,
    /// Opt-in, for machines without user namespaces or mounts: file access rules, the system call filter and limits per
    /// process. The operators' guide lists what it does not guarantee.
    Degraded,
}

impl Tier {
    /// Its name in settings, records and replies.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Strict => "strict",
            Self::Degraded => "degraded",
        }
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// An isolation layer, serialized as records and replies name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Layer {
    /// User, mount, process, network, IPC, host name and control group namespaces.
    Namespaces,
    /// A private root, without `/proc`, read-only except for the session's trees.
    Root,
    /// Writes go to layers of limited size, which the host checks before it stores their files.
    Overlay,
    /// Access rules on files, and none to sockets and processes outside.
    Landlock,
    /// A list of the system calls that are allowed.
    Seccomp,
    /// Limits per process.
    Rlimits,
    /// A control group (version 2) for the run: limits memory, processes and CPU share of the whole tree.
    CgroupV2,
    /// The same with version 1.
    CgroupV1,
    /// No control group could be created: usage of the tree is measured many times a second, and it is killed above its
    /// limits.
    Watchdog,
}
