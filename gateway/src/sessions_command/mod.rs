//! `mooring sessions`: the sessions of the store that the settings name, without a gateway in between. What is done here
//! is what a gateway over the same store does, by the same commands; gateways may run meanwhile.
//!
//! Invariant: where the store cannot be reached, nothing is done: no command is served from memory. What is printed for
//! people holds no control characters, and no secret but an agent's session in `show` and in an export.

mod agent_record;
mod agent_records;
mod export;
mod import;
mod list;
mod policy;
mod room;
mod select;
mod show;
mod target;

use std::path::PathBuf;

use mooring_session::names::NameError;

use self::target::StoreTarget;
use crate::cli::{
    EXIT_BAD_SETTINGS, EXIT_FAILURE, EXIT_SERVICE_MISSING, SessionsArguments, SessionsCommand,
};
use mooring_agent::conversations::SaveError;
use mooring_agent::session_file::{ReadError, WriteError};
use mooring_settings::SettingsError;
use mooring_store::{OpenError, StoreError};

/// What a command came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// What is printed.
    pub text: String,
    /// What is said on standard error, a line each.
    pub remarks: Vec<String>,
    /// Whether nothing at all could be done with what was given.
    pub is_fruitless: bool,
}

impl Outcome {
    fn printed(text: String) -> Self {
        Self {
            text,
            ..Self::default()
        }
    }
}

/// Why a command came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum SessionsError {
    /// The settings that say where the store is cannot be used.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// A flag has no valid value.
    #[error("{0}")]
    Flag(String),
    /// A flag's value is no name.
    #[error("--{flag} cannot be used")]
    Name {
        /// The flag.
        flag: &'static str,
        /// What is wrong.
        source: NameError,
    },
    /// The store cannot be opened.
    #[error("the store ({location}) is not available")]
    Open {
        /// Where it is, without credentials.
        location: String,
        /// Why.
        source: OpenError,
    },
    /// The store's file cannot be written, so that nothing done would last.
    #[error("the store ({location}) cannot be written; what was done is lost")]
    Unwritable {
        /// Where it is.
        location: String,
    },
    /// The store was opened, and did not do what it was asked.
    #[error("the store did not answer as it should")]
    Store(#[from] StoreError),
    /// The store does not know all its sessions at present.
    #[error("the store is still looking through its sessions; ask again in a moment")]
    Incomplete,
    /// A key of the store, or a name in a record, cannot be made.
    #[error("the session cannot be stored")]
    Record(#[from] NameError),
    /// The import stopped in the middle: what was taken stays.
    #[error("the import stopped after {taken} of {of} sessions; it can be repeated")]
    Stopped {
        /// How many were taken.
        taken: usize,
        /// How many there are.
        of: usize,
        /// Why.
        source: Box<SessionsError>,
    },
    /// The file that is imported cannot be used.
    #[error("{} cannot be imported", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: ReadError,
    },
    /// The file that is exported cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// No session is named so.
    #[error("the store has no such session")]
    NoSuchSession,
    /// Several sessions are named so.
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

/// Does what is asked, and says what came of it.
///
/// # Errors
/// See [`SessionsError`].
pub async fn run(arguments: SessionsArguments) -> Result<Outcome, SessionsError> {
    let target = StoreTarget::load(&arguments.store)?;
    match arguments.command {
        SessionsCommand::Import {
            file,
            owner,
            overwrite,
        } => {
            let conflicts = if overwrite {
                import::OnKnown::Overwrite
            } else {
                import::OnKnown::KeepNewer
            };
            import::run(&target, &owner, &file, conflicts).await
        }
        SessionsCommand::Export { file, owner } => export::run(&target, &owner, &file).await,
        SessionsCommand::List {
            principal,
            server,
            kind,
            limit,
            json,
        } => {
            let wanted = list::ListFilter::parse(principal, server, kind, limit)?;
            list::run(&target, &wanted, json).await
        }
        SessionsCommand::Show { session, json } => show::show(&target, &session, json).await,
        SessionsCommand::End { session } => show::end(&target, &session).await,
    }
}

#[cfg(test)]
mod tests;
