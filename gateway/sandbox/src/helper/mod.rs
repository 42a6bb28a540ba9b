//! Inside: the re-executed, single-threaded helper that builds the walls and runs the program within them.
//!
//! Two processes are ours. The helper [`outer`] is started by the host, leaves the host's namespaces, and builds a root.
//! [`first_process`], its child, is process 1 of the run: it confines itself, then starts the program. Each step stands
//! in a file of its own and fails with an error of its own. In the degraded tier nothing is left behind and nothing
//! built: [`degraded`] stands in place of what follows the host's word, and the child leads a process group.
//!
//! Invariant: no program is started before every step has succeeded.

mod access_rules;
mod capabilities;
mod control_group;
mod degraded;
mod descriptors;
mod error;
mod first_process;
mod identity;
mod namespaces;
mod network;
mod outer;
mod own_user;
mod places;
mod private;
mod process;
mod process_limit;
mod program;
mod rlimits;
mod root;
mod seccomp;
mod trees;

use std::ffi::OsStr;

pub(crate) use own_user::{HostKind, kind_of_host};
pub use seccomp::{Connections, FilterError, filter};

/// Whether this process was started to be the helper.
#[must_use]
pub fn is_helper() -> bool {
    std::env::args_os().next().as_deref() == Some(OsStr::new(crate::protocol::HELPER_NAME))
}

/// Be the helper: speak [`crate::protocol`] on descriptor 0, and end. To be called before anything else, while the
/// process has one thread.
pub fn helper() -> ! {
    // The host has been told, or is gone: there is nobody else to tell.
    end(i32::from(outer::run().is_err()))
}

/// Ends this process. What it still holds are descriptors, which the kernel closes.
#[expect(
    clippy::disallowed_methods,
    reason = "a forked process must not return into what its parent was doing"
)]
fn end(code: i32) -> ! {
    std::process::exit(code)
}
