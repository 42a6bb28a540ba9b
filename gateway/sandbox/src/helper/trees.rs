//! Step: the session's trees, opened again inside the new mount namespace.
//!
//! A descriptor of the host refers to the host's mounts, of which a new namespace has only copies, and the kernel does
//! not mount across namespaces. So each directory is reopened by the path that the kernel reports for it, without
//! following links, and must be the same directory.

use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, fstat, openat2};

use super::error::{Cause, HelperStep, StepError, at};
use crate::job::SessionTrees;
use crate::protocol::SpecDescriptors;

/// Opens all four again, in the mount namespace of the run.
pub(super) fn reopen(descriptors: &SpecDescriptors<OwnedFd>) -> Result<SessionTrees, StepError> {
    let again = |name, directory| reopen_one(name, directory).map_err(HelperStep::TREES.failed());
    Ok(SessionTrees {
        tools: again("tools", &descriptors.tools)?,
        skills: again("skills", &descriptors.skills)?,
        scratch: again("scratch", &descriptors.scratch)?,
        results: again("results", &descriptors.results)?,
    })
}

fn reopen_one(name: &'static str, directory: &OwnedFd) -> Result<OwnedFd, Cause> {
    let path: PathBuf =
        fs::read_link(format!("/proc/self/fd/{}", directory.as_raw_fd())).map_err(at(name))?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let again = openat2(CWD, &path, flags, Mode::empty(), resolve)
        .map_err(at(format!("open {name} again")))?;
    let (before, after) = (
        fstat(directory).map_err(at(name))?,
        fstat(&again).map_err(at(name))?,
    );
    if (before.st_dev, before.st_ino) != (after.st_dev, after.st_ino) {
        return Err(Cause::words(format!(
            "{name} is another directory than the one that was passed"
        )));
    }
    Ok(again)
}
