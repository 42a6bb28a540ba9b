//! Step: into the run's control group.
//!
//! A thread that writes `0` to such a file moves itself. For a single thread that moves itself the kernel stops nobody
//! else; for a process that another one moves it first waits until every processor of the machine has taken notice,
//! which takes ten milliseconds and more. Process 1 has one thread, and all that it starts begins in its groups.

use std::os::fd::OwnedFd;

use super::error::{StepError, at};

/// Steps through every door, and closes it. To be called before process 1 does anything that is to be counted.
pub(super) fn step_into(doors: Vec<OwnedFd>) -> Result<(), StepError> {
    for door in doors {
        rustix::io::retry_on_intr(|| rustix::io::write(&door, b"0"))
            .map_err(at("step into the group"))
            .map_err(StepError::ControlGroup)?;
    }
    Ok(())
}
