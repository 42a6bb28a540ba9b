//! Confines one run of untrusted code, and stores the files that it wrote.
//!
//! A run is a [`Job`]: a program, the trees it sees, and its limits. `Sandbox::probe` tests once, with a run, which
//! isolation layers this machine supports; `Sandbox::run` builds them around each run in a re-executed, single-threaded
//! helper and returns an [`Outcome`]. The files that a run wrote are in separate layers until `tree` has checked each
//! entry and committed it.
//!
//! Invariant: if an isolation layer is unavailable, the error names the step and nothing runs. Nothing of a run
//! outlives it: no process, no mount, no control group, no file outside its session.

mod cgroup;
pub mod helper;
mod job;
mod job_check;
mod options;
mod outcome;
pub mod protocol;
mod run;
mod runtimes;
mod thread_time;
pub mod tree;

use mooring_run_policy::{limits, paths, tier};

pub use helper::{helper, is_helper};
pub use job::{Argument, Job, ListenerCallback, Network, PROXY_PORT, Program, SessionTrees, Stage};
pub use job_check::JobError;
pub use limits::{LimitError, Limits};
pub use options::Options;
pub use outcome::{
    Changes, HelperStart, Outcome, Output, RefusedCall, RunEnd, RunLimit, StopReason, Usage,
};
pub use run::{ProbeError, RunError, Sandbox, StopHandle};
pub use runtimes::{Runtime, Runtimes, TOOLS};
pub use tier::{Layer, Tier};
