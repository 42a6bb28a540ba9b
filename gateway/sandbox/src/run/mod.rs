//! The host's side of a run: one thread starts the helper, watches the run from its beginning to its end, and answers
//! when no process of it is left.
//!
//! Invariant: the thread that starts a helper, that of the run or the one of [`warm`], stays until every process of the run
//! is dead, because the helper is tied to it: were the thread to end, or its process to be killed, the kernel would kill
//! the helper, and with it the run.

mod begun;
mod error;
mod kernel_objects;
mod private;
mod probe;
mod probe_error;
mod pump;
mod ready;
mod sandbox;
mod spawn;
mod spec;
mod state;
mod stop;
mod verdict;
mod warm;
mod watch;
mod watchdog;

pub use error::RunError;
pub use probe_error::ProbeError;
pub use sandbox::Sandbox;
pub use stop::StopHandle;
