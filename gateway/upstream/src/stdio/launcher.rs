//! Starts supervisors, which are this binary under another name.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use super::supervisor::{GUARD_NAME, OWN_BINARY};

/// How to start supervisors.
#[derive(Clone, Debug, Default)]
pub struct Launcher {
    /// Arguments that make this binary call [`super::supervisor::supervise`]. None for the gateway, which checks its
    /// own name.
    pub arguments: Vec<OsString>,
}

impl Launcher {
    /// Starts a guard with an empty environment and a single descriptor, its side of the socket. The caller has to wait
    /// for it; dropping it ends nothing.
    pub(super) fn start(&self, socket: UnixStream) -> std::io::Result<tokio::process::Child> {
        tokio::process::Command::new(OWN_BINARY)
            .arg0(GUARD_NAME)
            .args(&self.arguments)
            .env_clear()
            .stdin(Stdio::from(OwnedFd::from(socket)))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
    }
}
