//! Why a call failed: the message for the caller, and the details for the log.
//!
//! Invariant: the message reveals nothing about this machine.

use mooring_session::Refusal;
use mooring_session::names::NameError;

use crate::conversations::ConversationError;
use crate::folder::FolderError;
use mooring_store::{StoreError, TurnError};
use mooring_upstream::stdio::StartError;

/// Why the program was not run. `Display` is the message for the caller.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// There is no working directory.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The conversation could not be begun or found.
    #[error("{}", conversation_error_text(.0))]
    Conversation(#[from] ConversationError),
    /// It did not get its turn.
    #[error("{}", turn_error_text(.0))]
    Turn(#[from] TurnError),
    /// Another process of this machine with the same store held the lock until the timeout.
    #[error("the conversation is busy with an earlier call; nothing was done; try again later")]
    Locked,
    /// The program could not be started.
    #[error("{}", .0.for_caller())]
    Start(#[from] StartError),
    /// A task panicked: a defect.
    #[error("internal error: the call was not completed")]
    Thread(#[from] tokio::task::JoinError),
    /// The client cancelled the call.
    #[error("the call was cancelled before the agent was started")]
    Cancelled,
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Conversation(error.into())
    }
}

impl From<NameError> for Failure {
    fn from(error: NameError) -> Self {
        Self::Conversation(error.into())
    }
}

impl Failure {
    /// Logs the details that the caller does not see.
    pub(super) fn log(&self, server: &str) {
        let cause: &dyn std::error::Error = match self {
            Self::Conversation(cause) => cause,
            Self::Turn(TurnError::Busy { .. } | TurnError::TooMany | TurnError::Withdrawn) => {
                return;
            }
            Self::Turn(cause) => cause,
            Self::Start(cause) => cause,
            Self::Thread(cause) => cause,
            Self::Folder(FolderError::NoDefault) => self,
            Self::Folder(_) | Self::Locked | Self::Cancelled => return,
        };
        tracing::warn!(server, %cause, "agent call failed");
    }
}

fn conversation_error_text(error: &ConversationError) -> &'static str {
    match error {
        ConversationError::AtCap(_) => {
            "conversation limit reached, and all conversations are in use; nothing was done"
        }
        ConversationError::Store(error) => store_error_text(error),
        ConversationError::Name(_) => "there can be no conversation of this name at this server",
    }
}

fn turn_error_text(error: &TurnError) -> &'static str {
    match error {
        TurnError::Busy { .. } => {
            "the conversation is busy with an earlier call; nothing was done; try again later"
        }
        TurnError::TooMany => {
            "too many calls wait for this conversation; nothing was done; try again later"
        }
        TurnError::Store(error) => store_error_text(error),
        TurnError::Name(_) => "there can be no conversation of this name at this server",
        TurnError::Withdrawn => "the call was cancelled before it began; nothing was done",
    }
}

fn store_error_text(error: &StoreError) -> &'static str {
    match error {
        StoreError::Refused(Refusal::Limit { .. } | Refusal::Cap { .. }) => {
            "session limit of the store reached; try again later"
        }
        StoreError::Refused(_) => "the session store refused the conversation",
        _ => "the session store is not available; nothing was done; try again in a few seconds",
    }
}
