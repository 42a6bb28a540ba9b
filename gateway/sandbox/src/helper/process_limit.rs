//! Step: limit the number of processes, if the kernel's own limit does not apply to the helper's user.
//!
//! `RLIMIT_NPROC` does not apply to the host's root. Since Linux 6.14 a process namespace has a highest pid, which
//! bounds a fork bomb if there is no control group.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;

use super::error::{HelperStep, StepError};

/// Numbers that the kernel keeps back once it has counted to the end.
const RESERVED: u32 = 300;

/// Numbers for process 1 and the main process.
const OWN: u32 = 2;

/// The directory of the setting, opened while there still is a `/proc`.
pub(super) struct KernelSettings(Option<OwnedFd>);

impl KernelSettings {
    /// Opens it; a machine without the file has no such limit.
    pub(super) fn open() -> Self {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Self(rustix::fs::open("/proc/sys/kernel", flags, Mode::empty()).ok())
    }

    /// Sets the highest process number of this process's own namespace. Only process 1 may call it: elsewhere it would
    /// be another namespace's.
    pub(super) fn limit_processes(self, processes: u32) -> Result<(), StepError> {
        let Some(directory) = self.0 else {
            return Ok(());
        };
        let opened = openat(
            directory.as_fd(),
            "pid_max",
            OFlags::WRONLY | OFlags::CLOEXEC,
            Mode::empty(),
        );
        let file = match opened {
            Ok(file) => file,
            // Read-only, or on this kernel the limit is for the whole machine and must not be changed.
            Err(Errno::ROFS | Errno::ACCESS | Errno::PERM | Errno::NOENT) => return Ok(()),
            Err(errno) => return Err(HelperStep::PROCESS_LIMIT.at("open pid_max")(errno)),
        };
        let number = RESERVED.saturating_add(OWN).saturating_add(processes);
        match rustix::io::write(&file, number.to_string().as_bytes()) {
            // More than the machine itself allows: its own limit is the lower one.
            Ok(_) | Err(Errno::INVAL | Errno::PERM) => Ok(()),
            Err(errno) => Err(HelperStep::PROCESS_LIMIT.at("write pid_max")(errno)),
        }
    }
}
