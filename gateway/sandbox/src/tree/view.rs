//! The trees as the `fs_*` tools see them.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::paths::Mount;

/// The four trees of a session, each an open directory.
#[derive(Debug)]
pub struct View {
    /// `/tools`.
    pub tools: OwnedFd,
    /// `/skills`.
    pub skills: OwnedFd,
    /// `/scratch`.
    pub scratch: OwnedFd,
    /// `/results`.
    pub results: OwnedFd,
}

impl View {
    /// The directory of one mount.
    #[must_use]
    pub fn mount(&self, mount: Mount) -> BorrowedFd<'_> {
        match mount {
            Mount::Results => self.results.as_fd(),
            Mount::Scratch => self.scratch.as_fd(),
            Mount::Skills => self.skills.as_fd(),
            Mount::Tools => self.tools.as_fd(),
        }
    }
}
