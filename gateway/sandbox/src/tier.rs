//! How strong the walls are, as a value that every answer carries.

use std::fmt;

/// How strong the walls are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// Every layer, or nothing runs.
    Strict,
    /// Opt-in, for machines without user namespaces or mounts: file access rules, the system call filter and limits
    /// per process. What it does not promise is written in the operators' guide.
    Degraded,
}

impl Tier {
    /// The word for it in settings, records and answers.
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

/// One wall.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Layer {
    /// User, mount, process, network, IPC, host name and control group namespaces.
    Namespaces,
    /// A root of its own, without `/proc`, read-only but for the session's trees.
    Root,
    /// Writes go to sized layers, which the host looks at before it keeps them.
    Overlay,
    /// Access rules on files, and none to sockets and processes outside.
    Landlock,
    /// A list of the system calls that are allowed.
    Seccomp,
    /// Limits per process.
    Rlimits,
    /// A control group (version 2) of its own: memory, processes and processor share of the whole tree.
    CgroupV2,
    /// The same with version 1.
    CgroupV1,
    /// No control group could be made: the tree's use is measured many times a second, and it is killed above its
    /// limits.
    Watchdog,
}

impl Layer {
    /// The word for it in records and answers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Namespaces => "namespaces",
            Self::Root => "root",
            Self::Overlay => "overlay",
            Self::Landlock => "landlock",
            Self::Seccomp => "seccomp",
            Self::Rlimits => "rlimits",
            Self::CgroupV2 => "cgroup_v2",
            Self::CgroupV1 => "cgroup_v1",
            Self::Watchdog => "watchdog",
        }
    }
}
