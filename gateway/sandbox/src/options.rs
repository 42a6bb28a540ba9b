//! What a sandbox is made of: decided once, when it is probed.

use std::path::{Path, PathBuf};

use crate::tier::Tier;

/// What a sandbox is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// How strong the walls have to be. Where they cannot be that strong, nothing runs.
    pub tier: Tier,
    /// The binary that builds the walls.
    pub launcher: Launcher,
    /// The interpreter of Python programs, an absolute path.
    pub python: PathBuf,
    /// The interpreter of TypeScript and JavaScript programs, an absolute path. `None` looks for `deno` in the
    /// directories of the tools.
    pub deno: Option<PathBuf>,
    /// Where the tools of pipelines are looked for, in this order.
    pub tool_directories: Vec<PathBuf>,
}

impl Options {
    /// The options of a Linux distribution's ordinary layout.
    #[must_use]
    pub fn new(tier: Tier) -> Self {
        Self {
            tier,
            launcher: Launcher::default(),
            python: PathBuf::from("/usr/bin/python3"),
            deno: None,
            tool_directories: vec![PathBuf::from("/usr/bin"), PathBuf::from("/bin")],
        }
    }
}

/// The binary that is executed again to build the walls around a run. It has to call [`helper`](crate::helper) before
/// anything else where [`is_helper`](crate::is_helper) says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launcher(PathBuf);

impl Launcher {
    /// The binary at `path`.
    #[must_use]
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// Where the binary is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Default for Launcher {
    /// The calling process's own binary, also after the file was replaced by an upgrade.
    fn default() -> Self {
        Self::at("/proc/self/exe")
    }
}
