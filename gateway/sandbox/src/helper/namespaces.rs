//! Step: create namespaces, so that no object outside has a name inside.
//!
//! The user namespace is created in the same call: it gives an ordinary user the right to create the others. The
//! process namespace takes effect with the next fork.

use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use super::error::{HelperStep, StepError};

/// Leaves every namespace of the host, and keeps later mounts to itself. What the host unmounts is unmounted here too,
/// unless the host's mounts are private: a helper that waits for a run must not keep a file system busy.
pub(super) fn enter() -> Result<(), StepError> {
    let all = UnshareFlags::NEWUSER
        | UnshareFlags::NEWNS
        | UnshareFlags::NEWPID
        | UnshareFlags::NEWNET
        | UnshareFlags::NEWIPC
        | UnshareFlags::NEWUTS
        | UnshareFlags::NEWCGROUP;
    // SAFETY: none of the flags takes apart what threads of one process share, and this process has one thread.
    unsafe { unshare_unsafe(all) }.map_err(HelperStep::NAMESPACES.at("unshare"))?;
    mount_change(
        "/",
        MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC,
    )
    .map_err(HelperStep::NAMESPACES.at("keep mounts inside"))
}
