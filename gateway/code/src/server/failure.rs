//! Why a call failed before or after its work: the message for the agent, and the details for the log.
//!
//! Invariant: the agent's message contains no host path, no key and no user name.

use mooring_sandbox::RunError;
use mooring_sandbox::tree::TreeError;
use mooring_session::Refusal;

use crate::place::PlaceError;
use crate::skills::SkillsError;
use crate::tokens::TokensError;
use crate::volume::{LockError, ManifestError, SessionOpenError, VolumeProblem, is_full};
use mooring_store::{StoreError, TurnError};

/// The message if the volume is full.
const FULL: &str = "the gateway's volume is full; nothing was done; its operator can make room";

/// Why a call failed. `Display` is the message for the agent.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The volume cannot be used at all; the readiness says why.
    #[error(
        "the sandbox's files cannot be used on this gateway at present; its operator finds the reason in /readyz"
    )]
    Volume(VolumeProblem),
    /// The sandbox failed its self-test, so nothing runs.
    #[error("{0}")]
    SandboxUnavailable(String),
    /// There is no session of this name. A defect.
    #[error("no session can be created for this server and user")]
    Place(#[from] PlaceError),
    /// The skills could not be looked up, and revoked ones may be among those that are mounted.
    #[error(
        "the skills of this server cannot be read at present; nothing was done; try again later"
    )]
    Skills(#[from] SkillsError),
    /// Personal data could not be tokenized, so the output is withheld.
    #[error("personal data could not be tokenized; the output is withheld: {0}")]
    Tokens(#[from] TokensError),
    /// The manifest of the mounted tools could not be made.
    #[error("{0}")]
    Mounted(#[from] ManifestError),
    /// The store did not say what the session is.
    #[error("{}", store_error_text(.0))]
    Store(#[from] StoreError),
    /// The session's turn did not come.
    #[error("{}", turn_error_text(.0))]
    Turn(#[from] TurnError),
    /// All run slots are taken and the queue is full.
    #[error("the gateway is busy with other runs; try again in a few seconds")]
    Overloaded,
    /// The session's directory could not be opened.
    #[error("{}", open_error_text(.0))]
    Open(#[from] SessionOpenError),
    /// A file tool was refused.
    #[error("{}", tree_error_text(.0))]
    Tree(#[from] TreeError),
    /// The run could not be made.
    #[error("{0}")]
    Run(#[from] RunError),
    /// The system gave no handle to stop it by.
    #[error("the run could not be prepared")]
    Stop(#[source] std::io::Error),
    /// The thread that did the work panicked. A defect.
    #[error("internal error: the call was not completed")]
    Thread(#[from] tokio::task::JoinError),
}

impl Failure {
    /// Logs the details that the agent's message leaves out. The agent's own mistakes and common refusals are not logged.
    pub(super) fn log(&self, session: &str) {
        let cause: &dyn std::error::Error = match self {
            Self::Tree(cause @ TreeError::System { .. }) => cause,
            Self::Run(_) | Self::Stop(_) => self,
            Self::Place(cause) => cause,
            Self::Store(cause) => cause,
            Self::Mounted(cause) => cause,
            Self::Skills(cause) => cause,
            Self::Tokens(cause) => cause,
            Self::Thread(cause) => cause,
            Self::Open(SessionOpenError::Lock(LockError::Busy { .. })) => return,
            Self::Open(cause) => cause,
            Self::Turn(TurnError::Busy { .. } | TurnError::TooMany | TurnError::Withdrawn) => {
                return;
            }
            Self::Turn(cause) => cause,
            Self::Tree(_) | Self::Overloaded | Self::Volume(_) | Self::SandboxUnavailable(_) => {
                return;
            }
        };
        let source = cause.source().map(ToString::to_string).unwrap_or_default();
        tracing::warn!(session, %cause, source, "code server call failed");
    }
}

impl From<LockError> for Failure {
    fn from(error: LockError) -> Self {
        Self::Open(SessionOpenError::Lock(error))
    }
}

fn store_error_text(error: &StoreError) -> &'static str {
    match error {
        StoreError::Refused(Refusal::Cap { .. }) => {
            "this user has as many code sessions as allowed (code.sessions_max); use the name of an earlier client, or wait until a session has expired"
        }
        StoreError::Refused(Refusal::Limit { .. }) => {
            "session limit of the store reached; try again later"
        }
        StoreError::Refused(_) => "the session store refused the session",
        _ => "the session store is not available; nothing was done; try again in a few seconds",
    }
}

fn turn_error_text(error: &TurnError) -> &'static str {
    match error {
        TurnError::Busy { .. } => {
            "the session is busy with an earlier call; nothing was done; try again later"
        }
        TurnError::TooMany => {
            "too many calls wait for this session; nothing was done; try again later"
        }
        TurnError::Store(error) => store_error_text(error),
        TurnError::Name(_) => "no session can be created for this server and user",
        TurnError::Withdrawn => "the call was cancelled before it began; nothing was done",
    }
}

fn tree_error_text(error: &TreeError) -> String {
    match error {
        TreeError::System { source, .. } if is_full(source) => FULL.to_owned(),
        TreeError::TooLarge { .. } => format!("{error}; read it in parts, from offset 0 on"),
        _ => error.to_string(),
    }
}

fn open_error_text(error: &SessionOpenError) -> &'static str {
    match error {
        SessionOpenError::File(error) | SessionOpenError::Lock(LockError::File(error))
            if error.is_full() =>
        {
            FULL
        }
        SessionOpenError::Lock(LockError::Busy { .. }) => {
            "the session is busy with an earlier call; nothing was done; try again later"
        }
        _ => "the session's files could not be opened; nothing was done; try again later",
    }
}
