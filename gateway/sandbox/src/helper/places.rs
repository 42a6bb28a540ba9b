//! The paths of a program's trees, its source and its temporary files.
//!
//! With a private root these are `/scratch`, `/results` and so on. In the degraded tier they have the same names in a
//! private directory of the host. A program that supports both starts in its scratch directory, finds the others next
//! to it, and has variables with their paths.

use std::path::{Path, PathBuf};

/// The places of one run.
#[derive(Debug, Clone)]
pub(super) struct Places {
    root: PathBuf,
}

impl Places {
    /// Those in `root`: `/`, or a private directory by its absolute path.
    pub(super) fn beneath(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The directory that contains all of them.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// The program's working directory.
    pub(super) fn scratch(&self) -> PathBuf {
        self.root.join("scratch")
    }

    /// What should be found later.
    pub(super) fn results(&self) -> PathBuf {
        self.root.join("results")
    }

    /// Read-only.
    pub(super) fn tools(&self) -> PathBuf {
        self.root.join("tools")
    }

    /// Read-only.
    pub(super) fn skills(&self) -> PathBuf {
        self.root.join("skills")
    }

    /// Gone with the run.
    pub(super) fn temporary(&self) -> PathBuf {
        self.root.join("tmp")
    }

    /// The program's own text. Read-only.
    pub(super) fn text(&self, name: &str) -> PathBuf {
        self.root.join("code").join(name)
    }

    /// Where a program may write.
    pub(super) fn writable(&self) -> [PathBuf; 3] {
        [self.scratch(), self.results(), self.temporary()]
    }

    /// The variables that name them.
    pub(super) fn variables(&self) -> [(&'static str, PathBuf); 6] {
        [
            ("HOME", self.scratch()),
            ("TMPDIR", self.temporary()),
            ("MOORING_SCRATCH", self.scratch()),
            ("MOORING_RESULTS", self.results()),
            ("MOORING_TOOLS", self.tools()),
            ("MOORING_SKILLS", self.skills()),
        ]
    }
}
