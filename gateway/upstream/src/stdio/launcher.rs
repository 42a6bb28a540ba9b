//! How supervisors are started: this binary, under another name.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use super::supervisor::GUARD_NAME;

/// The running binary, also where the file it was started from has been replaced.
pub(super) const OWN_BINARY: &str = "/proc/self/exe";

/// How supervisors are started.
#[derive(Clone, Debug, Default)]
pub struct Launcher {
    /// Arguments that make this binary call [`super::supervisor::supervise`]: none for the gateway, which looks at its
    /// name.
    pub arguments: Vec<OsString>,
}

impl Launcher {
    /// Starts a guard with an empty environment and one descriptor: its end of the socket. The caller has to wait for
    /// it; dropping it ends nothing.
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
