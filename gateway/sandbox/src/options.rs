//! The configuration of a sandbox, which is fixed when it is probed.

use std::path::PathBuf;

use crate::tier::Tier;

/// The configuration of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The isolation tier. If it is unavailable, nothing runs.
    pub tier: Tier,
    /// The binary that is re-executed to build the isolation layers of a run. It must call [`helper`](crate::helper)
    /// before anything else if [`is_helper`](crate::is_helper) returns true.
    pub launcher: PathBuf,
    /// The interpreter of Python programs, an absolute path.
    pub python: PathBuf,
    /// The interpreter of TypeScript and JavaScript programs, an absolute path. `None` searches for `deno` in the
    /// directories of the tools.
    pub deno: Option<PathBuf>,
    /// How many helpers are started in advance and wait for a run, each for one. In the strict tier only.
    pub warm_helpers: usize,
    /// Where tools of pipelines are searched, in this order.
    pub tool_directories: Vec<PathBuf>,
}

impl Options {
    /// The options of a Linux distribution's ordinary layout.
    #[must_use]
    pub fn new(tier: Tier) -> Self {
        Self {
            tier,
            // This process's own binary, also after the file was replaced by an upgrade.
            launcher: PathBuf::from("/proc/self/exe"),
            python: PathBuf::from("/usr/bin/python3"),
            deno: None,
            warm_helpers: 0,
            tool_directories: vec![PathBuf::from("/usr/bin"), PathBuf::from("/bin")],
        }
    }
}
