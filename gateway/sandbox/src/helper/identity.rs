//! Step: the user, the group and the host name that are seen inside.
//!
//! One user and one group exist inside. They are mapped to those of the host's process, which therefore owns the run's
//! files, but have other numbers, which do not reveal the host's.

use std::fs;

use rustix::process::{getegid, geteuid};

use super::error::{HelperStep, StepError};

/// The number of the one user and of the one group inside.
pub(super) const INSIDE_ID: u32 = 1000;

/// The host name inside, the same on every machine.
const HOST_NAME: &str = "sandbox";

/// The identifiers that this process had outside, read before its namespace begins.
pub(super) struct Outside {
    user: u32,
    group: u32,
}

impl Outside {
    /// Of this process.
    pub(super) fn read() -> Self {
        Self {
            user: geteuid().as_raw(),
            group: getegid().as_raw(),
        }
    }

    /// Maps them to [`INSIDE_ID`].
    pub(super) fn map(&self) -> Result<(), StepError> {
        // The kernel accepts a group map from an ordinary user only after `setgroups` is denied.
        let files = [
            ("/proc/self/setgroups", "deny".to_owned()),
            ("/proc/self/uid_map", format!("{INSIDE_ID} {} 1", self.user)),
            (
                "/proc/self/gid_map",
                format!("{INSIDE_ID} {} 1", self.group),
            ),
        ];
        for (file, line) in files {
            fs::write(file, line).map_err(HelperStep::IDENTITY.at(file))?;
        }
        Ok(())
    }
}

/// Sets the host name inside.
pub(super) fn name_host() -> Result<(), StepError> {
    rustix::system::sethostname(HOST_NAME.as_bytes())
        .map_err(HelperStep::HOST_NAME.at("sethostname"))?;
    rustix::system::setdomainname(b"").map_err(HelperStep::HOST_NAME.at("setdomainname"))
}
