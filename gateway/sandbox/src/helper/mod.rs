//! The re-executed, single-threaded helper that builds the isolation layers and runs the program inside them.
//!
//! It consists of two processes. The helper [`outer`] is started by the host, leaves the host's namespaces, and builds
//! a root. [`first_process`], its child, is process 1 of the run: it confines itself, then starts the program. Each
//! step has its own file and its own error. In the degraded tier no namespaces are left and no root is built:
//! [`degraded`] replaces the part after the host's request, and the child leads a process group.
//!
//! Invariant: no program is started before every step has succeeded.

mod access_rules;
mod capabilities;
mod control_group;
mod conversation;
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
mod refused_calls;
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
    // The error was reported to the host, or the host is gone.
    process::end(i32::from(outer::run().is_err()))
}
