//! Why a run could not be made. That a program failed, or was stopped, is no error: that is an outcome.

use std::io;

use crate::job_check::JobError;

/// Why a run could not be made. Nothing of it is left.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The job asks for what no run may have.
    #[error("the job was refused")]
    Job(#[from] JobError),
    /// What the program needs is not installed.
    #[error("{name} is not installed: {remedy}")]
    RuntimeMissing {
        /// What is missing.
        name: String,
        /// One sentence: how to get it.
        remedy: String,
    },
    /// A pipeline names something that is none of the tools.
    #[error("{name} is none of the tools of a pipeline")]
    ToolUnknown {
        /// What it named.
        name: String,
    },
    /// The job asks for the network where there is no network namespace.
    #[error("a run reaches the network in the strict tier only")]
    NetworkNeedsStrict,
    /// The host's side of the walls could not be made.
    #[error("sandbox_unavailable: {step}")]
    Host {
        /// What was being done.
        step: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// A wall could not be built, so the program was not started.
    #[error("sandbox_unavailable: {step} {text}")]
    Wall {
        /// What was being done inside.
        step: String,
        /// The system's number for it, 0 where it was not the system's refusal.
        errno: i32,
        /// The same in words.
        text: String,
    },
    /// The helper was gone before the run had ended.
    #[error("sandbox_unavailable: the helper ended {during} without a word ({status})")]
    HelperDied {
        /// What it was doing.
        during: &'static str,
        /// How it ended.
        status: String,
    },
    /// The walls were not built in time.
    #[error("sandbox_unavailable: the walls were not built within {seconds} s")]
    SetupTimeout {
        /// The limit.
        seconds: u64,
    },
    /// Everything of the run was killed, and something is still there: the kernel cannot end it.
    #[error(
        "sandbox_unavailable: processes of the run did not end within {seconds} s after they were killed"
    )]
    Undying {
        /// The limit.
        seconds: u64,
    },
    /// The helper said something that nobody understands here: it is of another version.
    #[error("sandbox_unavailable: the helper answered out of turn: {text}")]
    Protocol {
        /// What it was.
        text: String,
    },
}

impl RunError {
    /// For `map_err`: an error of the host's side at `step`.
    pub(crate) fn host<E: Into<io::Error>>(step: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::Host {
            step,
            source: source.into(),
        }
    }
}
