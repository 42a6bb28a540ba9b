//! What both supervisors begin with: the binary, a process name, ignored signals.

use std::ffi::CStr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGALRM, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};

use crate::stdio::protocol::StartFailure;

/// The running binary, even if its file has been replaced.
pub(in crate::stdio) const OWN_BINARY: &str = "/proc/self/exe";
/// The process name of a guard.
pub(in crate::stdio) const GUARD_NAME: &str = "mooring-guard";
/// The process name of a keeper.
pub(super) const KEEPER_NAME: &str = "mooring-keeper";
/// Ignored signals: termination requests, and others that would end the process.
const IGNORED_SIGNALS: [i32; 7] = [SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM];

/// Common setup before anything is started: process name, ignored signals, subreaper.
pub(super) fn prepare(name: &CStr) -> Result<(), StartFailure> {
    // For process lists: otherwise the name would be `exe`, the link that was executed.
    let _ = rustix::thread::set_name(name);
    let ignored = Arc::new(AtomicBool::new(false));
    for signal in IGNORED_SIGNALS {
        // A handler rather than SIG_IGN, which the child would inherit.
        signal_hook::flag::register(signal, Arc::clone(&ignored))
            .map_err(StartFailure::setup("signals"))?;
    }
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(StartFailure::setup("child subreaper"))
}
