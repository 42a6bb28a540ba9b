//! Why a child could not be started.

use std::io;

use super::protocol::StartFailure;

/// Why a child could not be started. The text is for the log and names programs and directories of this machine;
/// callers get [`StartError::for_caller`].
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The limit of child processes is reached.
    #[error("all {children_max} child processes that may run are in use")]
    AllInUse {
        /// The limit.
        children_max: usize,
    },
    /// Pipes or a socket could not be created.
    #[error("no pipes for a child: {0}")]
    Pipes(#[source] io::Error),
    /// The supervisor could not be started.
    #[error("the supervisor of a child could not be started: {0}")]
    Supervisor(#[source] io::Error),
    /// The start request could not be sent to the supervisor.
    #[error("the start request could not be sent to the supervisor of a child: {0}")]
    Order(#[source] io::Error),
    /// The supervisor could not start the child and reported why.
    #[error(transparent)]
    Failed(#[from] StartFailure),
    /// The supervisor ended without a report.
    #[error("the supervisor of a child ended without a report")]
    SupervisorLost,
    /// The child did not start within [`super::ChildLimits::start_within`].
    #[error("a child did not start in time")]
    Late,
}

impl StartError {
    /// The text for the gateway's callers. Of this machine it shows only the program's name.
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
}

/// The file name of a program.
fn name(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}
