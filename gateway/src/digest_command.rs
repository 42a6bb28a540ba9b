//! `mooring digest`: the digest that identifies a user in the logs and metrics of a fleet.

use mooring_peers::fleet::{KeyRing, UserDigests};
use mooring_secrets::file::FileError;
use mooring_session::names::{NameError, Principal};
use mooring_settings::{Environment, Flags, FleetKeysFile, Settings, SettingsError};

use crate::cli::{DigestArguments, EXIT_BAD_SETTINGS, EXIT_FAILURE};

/// Why there is no digest.
#[derive(Debug, thiserror::Error)]
pub enum DigestError {
    /// The settings cannot be read.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// It is no name of a user.
    #[error("{0:?} is no name of a user: {1}")]
    Name(String, #[source] NameError),
    /// There are no keys of a fleet.
    #[error(
        "the settings name no worker.fleet_keys_file: each gateway has digests of its own, until it stops"
    )]
    NoKeys,
    /// The keys cannot be read.
    #[error("the fleet's keys cannot be read: {0}")]
    Keys(#[from] FileError),
}

impl DigestError {
    /// The exit code of the process.
    #[must_use]
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Settings(_) | Self::Name(..) | Self::NoKeys => EXIT_BAD_SETTINGS,
            Self::Keys(_) => EXIT_FAILURE,
        }
    }
}

/// The digest of the user.
///
/// # Errors
/// [`DigestError`].
pub fn run(arguments: DigestArguments) -> Result<String, DigestError> {
    let flags = Flags {
        config: arguments.config,
        ..Flags::default()
    };
    let settings = Settings::load(&Environment::of_process(), &flags)?.settings;
    let user = Principal::parse(arguments.user.as_bytes())
        .map_err(|error| DigestError::Name(arguments.user, error))?;
    let ring = match &settings.worker.peers.fleet_keys_file {
        Some(FleetKeysFile::Given(path) | FleetKeysFile::BesideStore(path)) => KeyRing::read(path)?,
        None => return Err(DigestError::NoKeys),
    };
    Ok(format!("{}\n", UserDigests::new(Some(&ring)).of(&user)))
}
