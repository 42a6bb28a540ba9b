//! The commands that ask a running gateway over its REST interface.
//!
//! Invariant: what is printed for people holds no control characters but line ends and tabs: names, messages and what
//! runs printed come from elsewhere, and must not drive a terminal.

mod events;
mod gateway;
mod runs;
mod skills;
pub(crate) mod table;
mod target;

use http::StatusCode;
use serde_json::Value;

use self::gateway::Gateway;
use self::target::GatewayTarget;
use crate::cli::{
    ClientArguments, EXIT_BAD_SETTINGS, EXIT_FAILURE, EXIT_SERVICE_MISSING, EventsArguments,
    RunsArguments, SkillsArguments,
};
use mooring_settings::SettingsError;

/// A command that asks a gateway.
#[derive(Debug, Clone)]
pub enum ClientCommand {
    /// `mooring runs`
    Runs(RunsArguments),
    /// `mooring skills`
    Skills(SkillsArguments),
    /// `mooring events`
    Events(EventsArguments),
}

/// What a command came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandOutput {
    /// What is printed.
    pub text: String,
    /// Whether all is as it should be: a replay that is not the same is not.
    pub is_good: bool,
}

/// Why a command came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The settings that say where the gateway is cannot be read.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// A flag has no valid value.
    #[error("{0}")]
    Flag(String),
    /// A file could not be read.
    #[error("{path} could not be read")]
    File {
        /// As it was given.
        path: String,
        /// What the system says.
        #[source]
        source: std::io::Error,
    },
    /// The request could not be prepared.
    #[error("the request could not be prepared: {0}")]
    Request(String),
    /// The gateway does not answer.
    #[error("the gateway at {gateway} does not answer")]
    Unreachable {
        /// Its URL.
        gateway: String,
        /// What happened.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// It refused.
    #[error("the gateway refused: {message} ({code}, status {})", .status.as_u16())]
    Refused {
        /// The status.
        status: StatusCode,
        /// The code that it named.
        code: String,
        /// What it said.
        message: String,
    },
    /// Its answer is nothing that was expected.
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
            Self::File { .. } | Self::Request(_) | Self::Refused { .. } | Self::Answer { .. } => {
                EXIT_FAILURE
            }
        }
    }
}

/// Asks, and says what came of it.
///
/// # Errors
/// See [`ClientError`].
pub async fn run(command: ClientCommand) -> Result<CommandOutput, ClientError> {
    match command {
        ClientCommand::Runs(RunsArguments { command, client }) => {
            runs::run(&gateway(&client)?, command, client.json).await
        }
        ClientCommand::Skills(SkillsArguments { command, client }) => {
            skills::run(&gateway(&client)?, command, client.json).await
        }
        ClientCommand::Events(EventsArguments { command, client }) => {
            events::run(&gateway(&client)?, command, client.json).await
        }
    }
}

fn gateway(arguments: &ClientArguments) -> Result<Gateway, ClientError> {
    Gateway::new(GatewayTarget::find(arguments)?)
}

/// All good.
fn good(text: String) -> CommandOutput {
    CommandOutput {
        text,
        is_good: true,
    }
}

/// The answer as it is, and a line's end.
fn raw(answer: &Value) -> CommandOutput {
    good(format!("{answer}\n"))
}

#[cfg(test)]
mod tests;
