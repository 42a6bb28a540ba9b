//! Errors of the REST interface: one table of codes and statuses.
//!
//! The body is `{"error": {"code": "...", "message": "..."}}`.

use std::time::Duration;

use axum::response::{IntoResponse, Response};
use http::header::{RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use serde_json::json;

use crate::http::caller::CallerRefusal;
use mooring_admin::OperatorError;
use mooring_admin::sessions::FilterError;
use mooring_code::records::RecordsError;
use mooring_code::replay::ReplayError;
use mooring_code::server::Failure;
use mooring_code::skills::{ChangeError, CreateError, SkillsError};
use mooring_pipeline::answer::seconds_of;
use mooring_router::affinity::MoveError;
use mooring_store::{DesiredStateError, StoreError};

/// Why a request is refused. Clients rely on the codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::VariantArray)]
pub(in crate::http) enum Code {
    /// The sender is not authenticated.
    Unauthenticated,
    /// The request has more than one credential, or one where it must not be.
    InvalidCredentials,
    /// The sender may not do this.
    Forbidden,
    /// No server of the kind that the path is about has this id.
    ServerNotFound,
    /// The run does not exist, or is not visible to the sender.
    RunNotFound,
    /// Likewise for a skill.
    SkillNotFound,
    /// Likewise for an approval.
    ApprovalNotFound,
    /// The sender has stored no credential for the server.
    CredentialNotFound,
    /// No session has this digest or place.
    SessionNotFound,
    /// Several sessions have digests that begin so.
    SessionAmbiguous,
    /// No gateway has this id.
    WorkerNotFound,
    /// The server has no such instance.
    InstanceNotFound,
    /// The session has no binding that can be moved there.
    NotMovable,
    /// A call of the session runs.
    SessionBusy,
    /// Others change the same thing at the same time.
    Changed,
    /// More cannot be stored.
    LimitReached,
    /// The store's session index is not complete yet.
    Incomplete,
    /// The credential cannot be sent in a header.
    CredentialInvalid,
    /// A parameter is unknown, repeated, or has no valid value.
    InvalidQuery,
    /// The body is not JSON of this schema.
    InvalidBody,
    /// The Content-Type is not application/json.
    UnsupportedMediaType,
    /// The body is longer than the limit.
    BodyTooLarge,
    /// The path does not support this method.
    MethodNotAllowed,
    /// The skill is invalid.
    SkillInvalid,
    /// Its source matches a pattern of dangerous code.
    SkillBlocked,
    /// The server has its maximum number of skills.
    SkillsFull,
    /// The skill's status does not allow this.
    SkillStatus,
    /// It was not approved in time.
    ApprovalExpired,
    /// The run is still running.
    RunRunning,
    /// Its record cannot be replayed.
    RunNotReplayable,
    /// The settings do not allow replays.
    ReplayDisabled,
    /// The replay was refused as an ordinary run would have been.
    ReplayRefused,
    /// The limit of requests, or of runs, is reached.
    RateLimited,
    /// The volume or the store is unavailable.
    Unavailable,
    /// The settings cannot be used.
    SettingsRefused,
    /// The definition of a server cannot be used.
    ServerInvalid,
    /// A server has this id.
    ServerExists,
    /// A defect of the gateway.
    Internal,
}

impl Code {
    /// The word in replies.
    pub(super) const fn word(self) -> &'static str {
        self.row().0
    }

    const fn row(self) -> (&'static str, StatusCode) {
        use StatusCode as S;
        match self {
            Self::Unauthenticated => ("unauthenticated", S::UNAUTHORIZED),
            Self::InvalidCredentials => ("invalid_credentials", S::BAD_REQUEST),
            Self::Forbidden => ("forbidden", S::FORBIDDEN),
            Self::ServerNotFound => ("server_not_found", S::NOT_FOUND),
            Self::RunNotFound => ("run_not_found", S::NOT_FOUND),
            Self::SkillNotFound => ("skill_not_found", S::NOT_FOUND),
            Self::ApprovalNotFound => ("approval_not_found", S::NOT_FOUND),
            Self::CredentialNotFound => ("credential_not_found", S::NOT_FOUND),
            Self::SessionNotFound => ("session_not_found", S::NOT_FOUND),
            Self::SessionAmbiguous => ("session_ambiguous", S::CONFLICT),
            Self::WorkerNotFound => ("worker_not_found", S::NOT_FOUND),
            Self::InstanceNotFound => ("instance_not_found", S::NOT_FOUND),
            Self::NotMovable => ("not_movable", S::CONFLICT),
            Self::SessionBusy => ("session_busy", S::CONFLICT),
            Self::Changed => ("changed", S::CONFLICT),
            Self::LimitReached => ("limit_reached", S::CONFLICT),
            Self::Incomplete => ("incomplete", S::SERVICE_UNAVAILABLE),
            Self::CredentialInvalid => ("credential_invalid", S::UNPROCESSABLE_ENTITY),
            Self::InvalidQuery => ("invalid_query", S::BAD_REQUEST),
            Self::InvalidBody => ("invalid_body", S::BAD_REQUEST),
            Self::UnsupportedMediaType => ("unsupported_media_type", S::UNSUPPORTED_MEDIA_TYPE),
            Self::BodyTooLarge => ("body_too_large", S::PAYLOAD_TOO_LARGE),
            Self::MethodNotAllowed => ("method_not_allowed", S::METHOD_NOT_ALLOWED),
            Self::SkillInvalid => ("skill_invalid", S::UNPROCESSABLE_ENTITY),
            Self::SkillBlocked => ("skill_blocked", S::UNPROCESSABLE_ENTITY),
            Self::SkillsFull => ("skills_full", S::CONFLICT),
            Self::SkillStatus => ("skill_status", S::CONFLICT),
            Self::ApprovalExpired => ("approval_expired", S::CONFLICT),
            Self::RunRunning => ("run_running", S::CONFLICT),
            Self::RunNotReplayable => ("run_not_replayable", S::CONFLICT),
            Self::ReplayDisabled => ("replay_disabled", S::FORBIDDEN),
            Self::ReplayRefused => ("replay_refused", S::UNPROCESSABLE_ENTITY),
            Self::RateLimited => ("rate_limited", S::TOO_MANY_REQUESTS),
            Self::Unavailable => ("unavailable", S::SERVICE_UNAVAILABLE),
            Self::ServerInvalid => ("server_invalid", S::UNPROCESSABLE_ENTITY),
            Self::ServerExists => ("server_exists", S::CONFLICT),
            Self::SettingsRefused => ("settings_refused", S::UNPROCESSABLE_ENTITY),
            Self::Internal => ("internal", S::INTERNAL_SERVER_ERROR),
        }
    }
}

/// The reason for a refusal.
#[derive(Debug)]
pub(in crate::http) struct Problem {
    code: Code,
    message: String,
    retry_after_seconds: Option<u64>,
    challenge: Option<HeaderValue>,
}

impl Problem {
    /// An error with a message for the caller.
    pub(in crate::http) fn new(code: Code, message: impl Into<String>) -> Self {
        let retry_after_seconds = matches!(code, Code::Unavailable | Code::Incomplete).then_some(1);
        Self {
            code,
            message: message.into(),
            retry_after_seconds,
            challenge: None,
        }
    }

    /// Why the request is refused.
    pub(in crate::http) const fn code(&self) -> Code {
        self.code
    }

    /// The status of the reply.
    pub(in crate::http) const fn status(&self) -> StatusCode {
        self.code.row().1
    }

    /// What is wrong, for the caller.
    pub(in crate::http) fn message(&self) -> &str {
        &self.message
    }

    /// A defect of the gateway.
    pub(in crate::http) fn internal() -> Self {
        Self::new(Code::Internal, "internal error")
    }

    /// The sender has no valid identity.
    pub(in crate::http) fn of_caller(CallerRefusal { error, challenge }: CallerRefusal) -> Self {
        let code = match error.status() {
            StatusCode::FORBIDDEN => Code::Forbidden,
            StatusCode::BAD_REQUEST => Code::InvalidCredentials,
            StatusCode::SERVICE_UNAVAILABLE => Code::Unavailable,
            _ => Code::Unauthenticated,
        };
        Self {
            challenge,
            ..Self::new(code, error.to_string())
        }
    }

    /// The sender has sent too many requests, and has to wait this long.
    pub(in crate::http) fn too_many_requests(wait: Duration) -> Self {
        Self {
            retry_after_seconds: Some(seconds_of(wait)),
            ..Self::new(Code::RateLimited, "too many requests within a minute")
        }
    }

    /// The run does not exist or is not visible.
    pub(in crate::http) fn no_run() -> Self {
        Self::new(Code::RunNotFound, "there is no such run")
    }

    /// The skill does not exist or is not visible.
    pub(in crate::http) fn no_skill() -> Self {
        Self::new(Code::SkillNotFound, "there is no such skill")
    }

    /// The approval does not exist or is not visible.
    pub(in crate::http) fn no_approval() -> Self {
        Self::new(Code::ApprovalNotFound, "there is no such approval")
    }

    fn unavailable() -> Self {
        Self::new(
            Code::Unavailable,
            "the files of this gateway cannot be used at present; its operator finds the reason in its log and in /readyz",
        )
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let (code, status) = self.code.row();
        let body = json!({"error": {"code": code, "message": self.message}});
        let mut reply = crate::http::reply::json_value(status, &body);
        if let Some(seconds) = self.retry_after_seconds {
            reply
                .headers_mut()
                .insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Some(challenge) = self.challenge {
            reply.headers_mut().insert(WWW_AUTHENTICATE, challenge);
        }
        reply
    }
}

impl From<Failure> for Problem {
    fn from(_: Failure) -> Self {
        Self::unavailable()
    }
}

impl From<RecordsError> for Problem {
    fn from(error: RecordsError) -> Self {
        match &error {
            RecordsError::NoRun => Self::no_run(),
            RecordsError::Unreadable => Self::new(Code::Unavailable, error.to_string()),
            RecordsError::Server(cause) | RecordsError::Read(cause) => {
                tracing::warn!(%error, %cause, "run records could not be read");
                Self::unavailable()
            }
        }
    }
}

impl From<SkillsError> for Problem {
    fn from(error: SkillsError) -> Self {
        match &error {
            SkillsError::Unreadable | SkillsError::Busy => {
                Self::new(Code::Unavailable, error.to_string())
            }
            SkillsError::Write(cause) => unwritten(cause),
            SkillsError::Server(cause) | SkillsError::Read(cause) => {
                tracing::warn!(%error, %cause, "skills could not be read");
                Self::unavailable()
            }
        }
    }
}

impl From<CreateError> for Problem {
    fn from(error: CreateError) -> Self {
        let message = error.to_string();
        match error {
            CreateError::Name
            | CreateError::Keyword
            | CreateError::Source
            | CreateError::Description => Self::new(Code::SkillInvalid, message),
            CreateError::Blocked(_) => Self::new(Code::SkillBlocked, message),
            CreateError::Full => Self::new(Code::SkillsFull, message),
            CreateError::Skills(error) => error.into(),
        }
    }
}

impl From<ChangeError> for Problem {
    fn from(error: ChangeError) -> Self {
        let message = error.to_string();
        match error {
            ChangeError::NoSkill => Self::no_skill(),
            ChangeError::Status(_) => Self::new(Code::SkillStatus, message),
            ChangeError::Expired => Self::new(Code::ApprovalExpired, message),
            ChangeError::Skills(error) => error.into(),
        }
    }
}

fn unwritten(cause: &std::io::Error) -> Problem {
    tracing::warn!(%cause, "a change to skills could not be stored");
    Problem::unavailable()
}

impl From<ReplayError> for Problem {
    fn from(error: ReplayError) -> Self {
        let message = error.to_string();
        match error {
            ReplayError::Off => Self::new(Code::ReplayDisabled, message),
            ReplayError::NoRun => Self::no_run(),
            ReplayError::Running => Self::new(Code::RunRunning, message),
            ReplayError::Record(_) => Self::new(Code::RunNotReplayable, message),
            ReplayError::Refused(_) => Self::new(Code::ReplayRefused, message),
            ReplayError::RateLimited { retry_after_ms } => Self {
                retry_after_seconds: Some(retry_after_ms.div_ceil(1_000)),
                ..Self::new(Code::RateLimited, message)
            },
        }
    }
}

impl From<OperatorError> for Problem {
    fn from(error: OperatorError) -> Self {
        let message = error.to_string();
        match error {
            OperatorError::Forbidden(_) => Self::new(Code::Forbidden, message),
            OperatorError::SessionNotFound => Self::new(Code::SessionNotFound, message),
            OperatorError::SeveralSessions => Self::new(Code::SessionAmbiguous, message),
            OperatorError::Incomplete => Self::new(Code::Incomplete, message),
            OperatorError::SessionName(_) => Self::new(Code::SessionNotFound, message),
            OperatorError::InstanceNotFound => Self::new(Code::InstanceNotFound, message),
            OperatorError::WorkerNotFound => Self::new(Code::WorkerNotFound, message),
            OperatorError::SeveralServers => Self::new(Code::InvalidBody, message),
            OperatorError::Move(error) => of_move(&error, message),
            OperatorError::Desired(DesiredStateError::Store(error)) => {
                tracing::warn!(%error, "an operator's act failed");
                Self::new(Code::Unavailable, message)
            }
            OperatorError::Desired(DesiredStateError::Limit(_)) => {
                Self::new(Code::LimitReached, message)
            }
            OperatorError::Desired(_) => Self::new(Code::Changed, message),
            OperatorError::Filter(_) => Self::new(Code::InvalidQuery, message),
            OperatorError::ServerNotFound => Self::new(Code::ServerNotFound, message),
            OperatorError::Store(error) => {
                tracing::warn!(%error, "an operator's request failed");
                // The operator is who can do something about it.
                Self::new(Code::Unavailable, format!("{message}: {error}"))
            }
        }
    }
}

/// Why a session was not moved.
fn of_move(error: &MoveError, message: String) -> Problem {
    let code = match error {
        MoveError::UnknownServer(_) => Code::ServerNotFound,
        MoveError::UnknownInstance(_) => Code::InstanceNotFound,
        MoveError::NoSession => Code::SessionNotFound,
        MoveError::NotBound | MoveError::SameInstance | MoveError::NoTarget => Code::NotMovable,
        MoveError::Busy(_) | MoveError::InCall => Code::SessionBusy,
        MoveError::Superseded => Code::Changed,
        MoveError::Owner(_) | MoveError::Resolve(_) => {
            tracing::warn!(%error, "a session was not moved");
            Code::Unavailable
        }
    };
    Problem::new(code, message)
}

impl From<FilterError> for Problem {
    fn from(error: FilterError) -> Self {
        Self::new(Code::InvalidQuery, error.to_string())
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        tracing::warn!(%error, "sessions could not be listed");
        Self::new(Code::Unavailable, "the session store is not available")
    }
}
