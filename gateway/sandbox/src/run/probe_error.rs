//! Why there is no sandbox.

use std::io;

use super::error::RunError;

/// Why there is no sandbox on this machine. The text begins with `sandbox_unavailable`.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The system call filter does not support this processor.
    #[error("sandbox_unavailable: {0}")]
    Filter(String),
    /// The directories of the self-test could not be created.
    #[error("sandbox_unavailable: directories of the self-test: {0}")]
    Trees(#[source] io::Error),
    /// The self-test could not run: the error names the isolation layer.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The self-test ran, and an isolation layer of the tier did not work.
    #[error("sandbox_unavailable: {wall} {found}")]
    Wall {
        /// Which one.
        wall: &'static str,
        /// The actual result.
        found: String,
    },
}

impl ProbeError {
    pub(super) fn wall(wall: &'static str, found: impl ToString) -> Self {
        Self::Wall {
            wall,
            found: found.to_string(),
        }
    }
}
