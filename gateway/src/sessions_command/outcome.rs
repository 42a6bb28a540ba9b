//! What a command on the store has done, or why it failed.

use std::path::PathBuf;

use mooring_session::names::NameError;

use crate::cli::{EXIT_BAD_SETTINGS, EXIT_FAILURE, EXIT_SERVICE_MISSING};
use mooring_admin::sessions::SessionFindError;
use mooring_agent::conversations::SaveError;
use mooring_agent::session_file::{ReadError, WriteError};
use mooring_settings::SettingsError;
use mooring_store::{OpenError, StoreError};

/// The result of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The text to print.
    pub text: String,
    /// Lines for stderr.
    pub remarks: Vec<String>,
    /// Whether none of the given entries could be used.
    pub is_fruitless: bool,
}

impl Outcome {
    pub(super) fn printed(text: String) -> Self {
        Self {
            text,
            ..Self::default()
        }
    }
}

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum SessionsError {
    /// The settings that name the store are unusable.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// A flag has no valid value.
    #[error("{0}")]
    Flag(String),
    /// A flag's value is not a valid name.
    #[error("--{flag} cannot be used")]
    Name {
        /// The flag.
        flag: &'static str,
        /// The reason.
        source: NameError,
    },
    /// The store cannot be opened.
    #[error("the store ({location}) is not available")]
    Open {
        /// Its location, without credentials.
        location: String,
        /// The reason.
        source: OpenError,
    },
    /// The store's file cannot be written, so that changes would be lost.
    #[error("the store ({location}) cannot be written; what was done is lost")]
    Unwritable {
        /// Its location.
        location: String,
    },
    /// The store was opened, but a command failed.
    #[error("unexpected reply of the store")]
    Store(#[from] StoreError),
    /// The store's session index is not complete yet.
    #[error("the store is still looking through its sessions; ask again in a moment")]
    Incomplete,
    /// A session's key, or a name in its record, is invalid.
    #[error("the session cannot be stored")]
    Record(#[from] NameError),
    /// The import failed part-way; the sessions that it imported stay.
    #[error("the import stopped after {taken} of {of} sessions; it can be repeated")]
    Stopped {
        /// How many were imported.
        taken: usize,
        /// How many there are.
        of: usize,
        /// The reason.
        source: Box<SessionsError>,
    },
    /// The file to import is unusable.
    #[error("{} cannot be imported", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: ReadError,
    },
    /// The export file cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// No session matches.
    #[error("the store has no such session")]
    NoSuchSession,
    /// Several sessions match.
    #[error("several sessions are named so; give more digits, or the place")]
    SeveralSessions,
}

impl From<SaveError> for SessionsError {
    fn from(error: SaveError) -> Self {
        match error {
            SaveError::Store(error) => Self::Store(error),
            SaveError::Name(error) => Self::Record(error),
        }
    }
}

impl From<SessionFindError> for SessionsError {
    fn from(error: SessionFindError) -> Self {
        match error {
            SessionFindError::Name(text) => Self::Flag(text),
            SessionFindError::NoSuchSession => Self::NoSuchSession,
            SessionFindError::SeveralSessions => Self::SeveralSessions,
            SessionFindError::Incomplete => Self::Incomplete,
            SessionFindError::Store(error) => Self::Store(error),
        }
    }
}

impl SessionsError {
    /// The exit code of the process.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Settings(_) | Self::Flag(_) | Self::Name { .. } => EXIT_BAD_SETTINGS,
            Self::Open { .. }
            | Self::Unwritable { .. }
            | Self::Incomplete
            | Self::Store(StoreError::Away(_) | StoreError::NotReady(_)) => EXIT_SERVICE_MISSING,
            Self::Stopped { source, .. } => source.exit_code(),
            Self::Store(_)
            | Self::Record(_)
            | Self::Read { .. }
            | Self::Write(_)
            | Self::NoSuchSession
            | Self::SeveralSessions => EXIT_FAILURE,
        }
    }
}
