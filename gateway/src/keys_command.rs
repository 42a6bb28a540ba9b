//! `mooring keys`: makes, lists and revokes API keys in their file. Gateways that share it see a change by themselves.
//!
//! Invariant: a key is printed once, when it is made, and nothing else of it but its id.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::json;

use crate::cli::{EXIT_BAD_SETTINGS, EXIT_FAILURE, KeysArguments, KeysCommand};
use crate::client::table::table;
use mooring_identity::{ApiKeyFile, ApiKeyFileError, StoredApiKey};
use mooring_settings::{AuthSettings, Environment, Flags, Settings, SettingsError};

const SECONDS_OF_DAY: u64 = 86_400;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum KeysCommandError {
    /// The settings that name the file are unusable.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// Neither a flag nor the settings name the file.
    #[error("name the file of API keys with --file: the settings have no auth.mode = \"api-key\"")]
    NoFile,
    /// The file cannot be read or changed.
    #[error(transparent)]
    File(#[from] ApiKeyFileError),
}

impl KeysCommandError {
    /// The exit code of the process.
    #[must_use]
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Settings(_) | Self::NoFile | Self::File(ApiKeyFileError::New(_)) => {
                EXIT_BAD_SETTINGS
            }
            Self::File(_) => EXIT_FAILURE,
        }
    }
}

/// The output of a command.
#[derive(Debug)]
pub struct KeysOutput {
    /// To standard output.
    pub text: String,
    /// To standard error, for people.
    pub remark: Option<String>,
}

/// Runs a command.
///
/// # Errors
/// See [`KeysCommandError`].
pub fn run(arguments: KeysArguments) -> Result<KeysOutput, KeysCommandError> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |since| since.as_secs());
    let path = match arguments.file {
        Some(path) => path,
        None => path_of_settings(arguments.config)?,
    };
    match arguments.command {
        KeysCommand::Create(new) => {
            let days = new.days;
            let key = ApiKeyFile::create(&path, &new.into(), now)?;
            Ok(KeysOutput {
                text: format!("{key}\n"),
                remark: Some(format!(
                    "the key is shown only now; it is valid for {days} days"
                )),
            })
        }
        KeysCommand::List { json } => {
            let file = ApiKeyFile::read(&path).map_err(ApiKeyFileError::from)?;
            let text = match json {
                true => as_json(file.keys(), now),
                false => as_table(file.keys(), now),
            };
            Ok(KeysOutput { text, remark: None })
        }
        KeysCommand::Revoke { id } => {
            let key = ApiKeyFile::revoke(&path, &id, now)?;
            Ok(KeysOutput {
                text: format!("revoked {} of {}\n", key.id, key.user),
                remark: None,
            })
        }
    }
}

fn path_of_settings(config: Option<PathBuf>) -> Result<PathBuf, KeysCommandError> {
    let flags = Flags {
        config,
        ..Flags::default()
    };
    let settings = Settings::load(&Environment::of_process(), &flags)?.settings;
    match settings.auth {
        AuthSettings::ApiKey { keys_file, .. } => Ok(keys_file),
        AuthSettings::None
        | AuthSettings::TrustedHeader(_)
        | AuthSettings::Jwt { .. }
        | AuthSettings::Mtls { .. } => Err(KeysCommandError::NoFile),
    }
}

/// Whether the key can be used, in a word.
fn state(key: &StoredApiKey, now: u64) -> &'static str {
    match key.revoked_at {
        Some(_) => "revoked",
        None if key.expires_at <= now => "expired",
        None => "valid",
    }
}

fn as_table(keys: &[StoredApiKey], now: u64) -> String {
    let rows: Vec<Vec<String>> = (keys.iter())
        .map(|key| {
            let state = match (state(key, now), key.expires_at.saturating_sub(now)) {
                ("valid", left) => format!("valid for {} days", left.div_ceil(SECONDS_OF_DAY)),
                (word, _) => word.to_owned(),
            };
            let lists = [&key.teams, &key.roles, &key.scopes].map(|list| list.join(", "));
            let note = key.note.clone().unwrap_or_default();
            [key.id.clone(), key.user.clone(), state]
                .into_iter()
                .chain(lists)
                .chain([note])
                .collect()
        })
        .collect();
    table(
        &["ID", "USER", "STATE", "TEAMS", "ROLES", "SCOPES", "NOTE"],
        &rows,
    )
}

fn as_json(keys: &[StoredApiKey], now: u64) -> String {
    let keys: Vec<_> = (keys.iter())
        .map(|key| {
            json!({
                "id": key.id,
                "user": key.user,
                "state": state(key, now),
                "teams": key.teams,
                "roles": key.roles,
                "scopes": key.scopes,
                "note": key.note,
                "created_at": key.created_at,
                "expires_at": key.expires_at,
                "revoked_at": key.revoked_at,
            })
        })
        .collect();
    format!("{}\n", json!({ "keys": keys }))
}
