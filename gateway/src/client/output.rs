//! What a command prints, or why it failed.

use http::StatusCode;
use serde_json::Value;

use crate::cli::{EXIT_BAD_SETTINGS, EXIT_FAILURE, EXIT_SERVICE_MISSING};
use mooring_secrets::file::FileError;
use mooring_settings::SettingsError;

/// The result of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandOutput {
    /// The text to print.
    pub text: String,
    /// False if a replay differs from the record.
    pub is_good: bool,
}

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The settings that name the gateway's address cannot be read.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// A flag has no valid value.
    #[error("{0}")]
    Flag(String),
    /// A file could not be read.
    #[error("{path} could not be read")]
    File {
        /// The path as given.
        path: String,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// The caller's certificate cannot be used.
    #[error(transparent)]
    Certificate(#[from] FileError),
    /// The request could not be prepared.
    #[error("the request could not be prepared: {0}")]
    Request(String),
    /// The gateway is unreachable.
    #[error("the gateway at {gateway} does not answer")]
    Unreachable {
        /// Its URL.
        gateway: String,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The gateway refused the request.
    #[error("the gateway refused: {message} ({code}, status {})", .status.as_u16())]
    Refused {
        /// The HTTP status.
        status: StatusCode,
        /// The error code.
        code: String,
        /// The error message.
        message: String,
    },
    /// The response does not have the expected form.
    #[error("what answers at {gateway} is no gateway with this interface (status {})", .status.as_u16())]
    Answer {
        /// Its URL.
        gateway: String,
        /// The status.
        status: StatusCode,
    },
}

impl ClientError {
    /// The exit code of the process.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Settings(_) | Self::Flag(_) => EXIT_BAD_SETTINGS,
            Self::Unreachable { .. } => EXIT_SERVICE_MISSING,
            Self::File { .. }
            | Self::Certificate(_)
            | Self::Request(_)
            | Self::Refused { .. }
            | Self::Answer { .. } => EXIT_FAILURE,
        }
    }
}

/// A successful result.
pub(super) fn good(text: String) -> CommandOutput {
    CommandOutput {
        text,
        is_good: true,
    }
}

/// The response unchanged, with a final line feed.
pub(super) fn raw(answer: &Value) -> CommandOutput {
    good(format!("{answer}\n"))
}

/// The response unchanged, or the text that this function makes of it.
pub(super) fn printed(answer: &Value, is_json: bool, text: fn(&Value) -> String) -> CommandOutput {
    match is_json {
        true => raw(answer),
        false => good(text(answer)),
    }
}
