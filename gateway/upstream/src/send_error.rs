//! Why a message to a server got no reply.
//!
//! Invariant: an error says whether the message can have been delivered.

use http::{StatusCode, Uri};

use super::cause::{causes, connect_text};
use super::http::{ConnectionError, RoundTripError};
use super::{ContactOutcome, CredentialError, FailureCause};

/// Why a request got no response.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The instance has refused connections for `lost_after`. Nothing was delivered.
    #[error("the instance refuses connections")]
    Refused,
    /// No connection for another reason (timeout, name resolution, TLS). Nothing was delivered.
    #[error("cannot connect to the instance: {}", connect_text(.0))]
    Connect(#[source] ConnectionError),
    /// No connection for [`UNREACHED_LOST_AFTER`](crate::UNREACHED_LOST_AFTER): the instance counts as lost. Nothing
    /// was delivered.
    #[error("the instance cannot be reached: {}", connect_text(.0))]
    Unreachable(#[source] ConnectionError),
    /// The connection broke after it was established. The request may have been delivered and may have run.
    #[error("the connection to the instance broke before it answered: {0}")]
    Broken(#[source] RoundTripError),
    /// The response is none that this gateway reads, or exceeds a limit. The request may have run.
    #[error("the response of the instance cannot be read: {0}")]
    Invalid(#[source] RoundTripError),
    /// The instance redirects the request, which did not run, to where it is not sent again: another host, a method that
    /// may change, or a redirect after a redirect.
    #[error("the instance redirects requests (HTTP status {}) to {to}", .status.as_u16())]
    Redirected {
        /// The status.
        status: StatusCode,
        /// Where to: a path, if it is at the same host.
        to: Box<str>,
        /// Where the same request may be sent, if that is at the same origin.
        target: Option<Box<Uri>>,
    },
    /// The session's turn passed to another call before the message was sent. Nothing was delivered.
    #[error("the session's turn has passed to another call")]
    TurnLost,
    /// There is no credential for the caller. Nothing was sent.
    #[error(transparent)]
    Credential(#[from] CredentialError),
    /// The server could not be started, or its stream could not be opened. Nothing was delivered.
    #[error("the server could not be started: {0}")]
    Unstarted(Box<FailureCause>),
    /// The connection that this gateway owned has ended. Nothing was delivered.
    #[error("the connection to the server has ended: {0}")]
    Ended(Box<str>),
    /// The gateway that was asked does not own the connection at this epoch. Nothing was delivered.
    #[error("another gateway owns the connection to the server")]
    Elsewhere,
    /// The owner is draining and accepts nothing new. Nothing was delivered.
    #[error("the gateway that owns the connection to the server is stopping")]
    OwnerDraining,
    /// The owner is unreachable, or has suspended its connections because it cannot reach the store. Nothing was
    /// delivered.
    #[error("the gateway that owns the connection to the server does not answer: {0}")]
    OwnerUnavailable(Box<str>),
    /// The process at the owner's address does not belong to this fleet. Nothing was delivered.
    #[error("the gateway that owns the connection to the server cannot be verified: {0}")]
    OwnerUnverified(Box<str>),
    /// The connection to the owner broke. The request may have been delivered and may have run.
    #[error("the connection to the gateway that owns the connection to the server broke: {0}")]
    OwnerBroken(Box<str>),
}

impl SendError {
    /// Whether the instance certainly received nothing.
    #[must_use]
    pub const fn is_undelivered(&self) -> bool {
        !matches!(
            self,
            Self::Broken(_) | Self::Invalid(_) | Self::OwnerBroken(_)
        )
    }
}

impl From<RoundTripError> for SendError {
    fn from(error: RoundTripError) -> Self {
        if error.is_invalid_response() {
            Self::Invalid(error)
        } else {
            Self::Broken(error)
        }
    }
}

impl From<&SendError> for FailureCause {
    fn from(error: &SendError) -> Self {
        match error {
            SendError::Refused => Self::new(ContactOutcome::Refused, "connection refused"),
            SendError::Connect(error) | SendError::Unreachable(error) => {
                let outcome = match causes(error).any(|cause| cause.is::<rustls::Error>()) {
                    true => ContactOutcome::Tls,
                    false => ContactOutcome::Connect,
                };
                Self::new(outcome, connect_text(error))
            }
            SendError::Unstarted(cause) => (**cause).clone(),
            SendError::Invalid(_) => Self::new(ContactOutcome::Invalid, error.to_string()),
            SendError::Redirected { .. } => Self::new(ContactOutcome::Status, error.to_string()),
            SendError::Broken(RoundTripError::HostSilent) => {
                Self::new(ContactOutcome::TimedOut, error.to_string())
            }
            error => Self::new(ContactOutcome::Broken, error.to_string()),
        }
    }
}
