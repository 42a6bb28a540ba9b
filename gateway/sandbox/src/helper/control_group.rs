//! Step: into the run's control group.
//!
//! A thread that writes `0` to such a file moves itself. If a single-threaded process moves itself, the kernel need not
//! wait; if another process moves it, the kernel first waits for every processor of the machine, which takes ten
//! milliseconds and more. Process 1 has one thread, and all its children start in its groups.

use std::os::fd::OwnedFd;

use super::error::{HelperStep, StepError};

/// Writes to every door file, and closes it. Must be called before process 1 does anything that counts towards the
/// limits.
pub(super) fn step_into(doors: Vec<OwnedFd>) -> Result<(), StepError> {
    for door in doors {
        rustix::io::retry_on_intr(|| rustix::io::write(&door, b"0"))
            .map_err(HelperStep::CONTROL_GROUP.at("step into the group"))?;
    }
    Ok(())
}
