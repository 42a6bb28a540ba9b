//! Why a run could not be performed. A program that failed or was stopped is not an error but an outcome.

use std::io;

use crate::job_check::JobError;
use crate::protocol::{ProtocolError, StepFailure};

/// Why a run could not be performed. Nothing of it is left.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The job asks for something that no run may have.
    #[error("the job was refused")]
    Job(#[from] JobError),
    /// A runtime or tool of the program is not installed.
    #[error("{name} is not installed: {remedy}")]
    RuntimeMissing {
        /// The missing runtime or tool.
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
    /// The job needs the network, but there is no network namespace.
    #[error("a run reaches the network in the strict tier only")]
    NetworkNeedsStrict,
    /// The job's trees are narrowed, and without mounts of its own a run cannot be kept from a part of a tree.
    #[error("parts of the trees are withheld in the strict tier only")]
    AccessNeedsStrict,
    /// The host's part of the isolation failed.
    #[error("sandbox_unavailable: {step}")]
    Host {
        /// The failed step.
        step: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// An isolation layer could not be built, so the program was not started.
    #[error("sandbox_unavailable: {step} {text}")]
    Wall {
        /// The failed step inside.
        step: String,
        /// The system's error number, 0 if it was not a system error.
        errno: i32,
        /// The same in words.
        text: String,
    },
    /// The helper was gone before the run had ended.
    #[error("sandbox_unavailable: the helper ended {during} without a message ({status})")]
    HelperDied {
        /// What the helper was doing.
        during: &'static str,
        /// How it ended.
        status: String,
    },
    /// The isolation layers were not built in time.
    #[error(
        "sandbox_unavailable: the isolation layers were not ready within {seconds} s; try again"
    )]
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
    /// The helper sent an unexpected message: it has another version.
    #[error("sandbox_unavailable: the helper answered out of turn: {text}")]
    Protocol {
        /// The message.
        text: String,
    },
}

impl From<StepFailure> for RunError {
    fn from(failed: StepFailure) -> Self {
        Self::Wall {
            step: failed.step,
            errno: failed.errno,
            text: failed.text,
        }
    }
}

impl RunError {
    /// For `map_err`: a message that could not be sent or understood.
    pub(super) fn out_of_turn(error: ProtocolError) -> Self {
        Self::Protocol {
            text: error.to_string(),
        }
    }

    /// For `map_err`: an error of the host's side at `step`.
    pub(crate) fn host<E: Into<io::Error>>(step: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::Host {
            step,
            source: source.into(),
        }
    }
}
