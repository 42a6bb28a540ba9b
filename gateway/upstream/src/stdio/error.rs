//! Why there is no child.

use std::io;

use super::protocol::StartFailure;

/// Why a child could not be started. The text is for the log: it names programs and directories of this machine; for
/// the caller there is [`StartError::for_caller`].
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// As many run as may.
    #[error("all {children_max} child processes that may run are in use")]
    AllInUse {
        /// The most.
        children_max: usize,
    },
    /// Pipes or a socket could not be made.
    #[error("no pipes for a child: {0}")]
    Pipes(#[source] io::Error),
    /// The supervisor could not be started.
    #[error("the supervisor of a child could not be started: {0}")]
    Supervisor(#[source] io::Error),
    /// The supervisor could not be told what to start.
    #[error("the start request could not be sent to the supervisor of a child: {0}")]
    Order(#[source] io::Error),
    /// The supervisor started none, and said why.
    #[error(transparent)]
    Failed(#[from] StartFailure),
    /// The supervisor ended without a word.
    #[error("the supervisor of a child ended without a word")]
    SupervisorLost,
    /// Not there within [`super::ChildLimits::start_within`].
    #[error("a child was not there in time")]
    Late,
}

impl StartError {
    /// What the caller of the gateway is told: of this machine nothing but the program's name.
    #[must_use]
    pub fn for_caller(&self) -> String {
        match self {
            Self::AllInUse { .. } => "the gateway runs as many server processes as it may".into(),
            Self::Failed(StartFailure::NotFound { program }) => {
                format!("the server's program {:?} was not found", name(program))
            }
            Self::Failed(StartFailure::NotExecutable { program }) => {
                format!(
                    "the server's program {:?} may not be executed",
                    name(program)
                )
            }
            Self::Failed(StartFailure::DirectoryMissing { .. }) => {
                "the directory that the server starts in does not exist".into()
            }
            Self::Late => "the server's process did not start in time".into(),
            Self::Pipes(_)
            | Self::Supervisor(_)
            | Self::Order(_)
            | Self::Failed(_)
            | Self::SupervisorLost => "the server's process could not be started".into(),
        }
    }

    /// Whether the same may succeed in a moment.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        !matches!(self, Self::Failed(_))
    }
}

/// A program without the directory that it lies in.
fn name(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}
