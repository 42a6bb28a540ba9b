//! The file of API keys: what it holds, and how a command changes it while gateways read it.
//!
//! Invariants: a file is replaced whole, by one writer at a time, so that a reader sees either the one before or the one
//! after; nothing in it can be used as a key.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use mooring_secrets::digest;
use mooring_secrets::file::{self as secret_file, FileError};
use serde::{Deserialize, Serialize};

use super::{NewApiKey, random_key};
use crate::value;

/// The version of the file's form.
const VERSION: u32 = 1;
/// Most keys of a file.
const KEYS_MAX: usize = 10_000;
/// Largest file.
const FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Most teams, roles or scopes of a key.
pub(super) const ITEMS_MAX: usize = 64;
/// Longest note in bytes.
const NOTE_BYTES_MAX: usize = 200;
/// How long a key that ended is still listed, in seconds.
const ENDED_KEPT_SECONDS: u64 = 90 * 86_400;

/// Why the file cannot be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum ApiKeyFileError {
    /// It cannot be read, or others can read it, or a key of it is not valid, or it cannot be written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The new key's user, teams, roles, scopes or note are not valid.
    #[error("{0}")]
    New(&'static str),
    /// It has no key of this id.
    #[error("there is no API key {0:?}")]
    NoSuchKey(String),
}

/// A key in the file. Times are in seconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoredApiKey {
    /// Names it to operators.
    pub id: String,
    /// The SHA-256 of its secret, in hexadecimal digits.
    pub sha256: String,
    /// Whose it is.
    pub user: String,
    /// The user's teams.
    #[serde(default)]
    pub teams: Vec<String>,
    /// The user's roles.
    #[serde(default)]
    pub roles: Vec<String>,
    /// The scopes that rules may ask for.
    #[serde(default)]
    pub scopes: Vec<String>,
    /// What it is for.
    pub note: Option<String>,
    /// When it was made.
    pub created_at: u64,
    /// From when on it is refused.
    pub expires_at: u64,
    /// When it was revoked, if it was.
    pub revoked_at: Option<u64>,
}

/// All keys of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApiKeyFile {
    version: u32,
    keys: Vec<StoredApiKey>,
}

impl ApiKeyFile {
    /// Reads the file. It must belong to root or to the user of this process, unless that is root. Only its owner may
    /// be able to read it; if it is root's, its group may too.
    ///
    /// # Errors
    /// It cannot be read, or is no file of this form.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        let text = secret_file::read(path, FILE_BYTES_MAX);
        let unreadable = |error| FileError::because("the API keys cannot be read", error);
        Self::parse(&text.map_err(unreadable)?)
    }

    pub(super) fn parse(text: &[u8]) -> Result<Self, FileError> {
        let file: Self = serde_json::from_slice(text)
            .map_err(|error| FileError::because("the file of API keys is not valid", error))?;
        let version = file.version;
        if version != VERSION {
            return Err(FileError::new(format!(
                "the file of API keys has version {version}, and only {VERSION} is known"
            )));
        }
        if file.keys.len() > KEYS_MAX {
            return Err(too_many());
        }
        Ok(file)
    }

    /// Its keys, the oldest first.
    #[must_use]
    pub fn keys(&self) -> &[StoredApiKey] {
        &self.keys
    }

    /// Makes a key and stores it. Returns the key, which is shown nowhere else.
    ///
    /// # Errors
    /// See [`ApiKeyFileError`].
    pub fn create(path: &Path, new: &NewApiKey, now: u64) -> Result<String, ApiKeyFileError> {
        Self::change(path, now, |file| {
            let (key, text) = StoredApiKey::new(new, now)?;
            if file.keys.len() >= KEYS_MAX {
                return Err(too_many().into());
            }
            file.keys.push(key);
            Ok(text)
        })
    }

    /// Revokes the key of this id. One that was revoked before keeps that time.
    ///
    /// # Errors
    /// See [`ApiKeyFileError`].
    pub fn revoke(path: &Path, id: &str, now: u64) -> Result<StoredApiKey, ApiKeyFileError> {
        Self::change(path, now, |file| {
            let found = file.keys.iter_mut().find(|key| key.id == id);
            let key = found.ok_or_else(|| ApiKeyFileError::NoSuchKey(id.to_owned()))?;
            key.revoked_at.get_or_insert(now);
            Ok(key.clone())
        })
    }

    /// Reads the file, or begins one, and replaces it by what `change` makes of it. Other writers wait.
    fn change<T>(
        path: &Path,
        now: u64,
        change: impl FnOnce(&mut Self) -> Result<T, ApiKeyFileError>,
    ) -> Result<T, ApiKeyFileError> {
        let failed = |step, path: &Path| {
            let sentence = format!("cannot {step} {}", path.display());
            move |error: io::Error| FileError::because(sentence, error)
        };
        let lock_path = beside(path, "lock");
        let lock = private_file(&lock_path).map_err(failed("open", &lock_path))?;
        lock.lock().map_err(failed("lock", &lock_path))?;

        let before = std::fs::metadata(path).ok();
        let mut file = match &before {
            Some(_) => Self::read(path)?,
            None => Self {
                version: VERSION,
                keys: Vec::new(),
            },
        };
        file.keys.retain(|key| !key.is_forgotten(now));
        let changed = change(&mut file)?;

        let new_path = beside(path, "new");
        let write = || -> io::Result<()> {
            let mut new = private_file(&new_path)?;
            new.set_len(0)?;
            new.write_all(&serde_json::to_vec_pretty(&file)?)?;
            if let Some(before) = &before {
                std::os::unix::fs::fchown(&new, Some(before.uid()), Some(before.gid()))?;
                new.set_permissions(Permissions::from_mode(before.mode() & 0o777))?;
            }
            new.sync_all()?;
            std::fs::rename(&new_path, path)?;
            let directory = path
                .parent()
                .filter(|parent| !parent.as_os_str().is_empty());
            File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
        };
        write().map_err(failed("write", path))?;
        Ok(changed)
    }
}

impl StoredApiKey {
    fn new(new: &NewApiKey, now: u64) -> Result<(Self, String), ApiKeyFileError> {
        let items = |items: &[String]| {
            let distinct = value::distinct_items(items.iter().map(String::as_str), ITEMS_MAX);
            let refused = "a team, role or scope is too long or has control characters, or there are more than 64";
            distinct.map_err(|_| ApiKeyFileError::New(refused))
        };
        if value::principal(&new.user).is_none() {
            let refused = "the user must have 1 to 320 bytes, without control characters and without spaces around it";
            return Err(ApiKeyFileError::New(refused));
        }
        let is_valid =
            |note: &String| note.len() <= NOTE_BYTES_MAX && !note.chars().any(char::is_control);
        if !new.note.as_ref().is_none_or(is_valid) {
            let refused = "the note may have 200 bytes, without control characters";
            return Err(ApiKeyFileError::New(refused));
        }
        let (id, secret, text) =
            random_key().ok_or_else(|| FileError::new("the system gives no random numbers"))?;
        let key = Self {
            id,
            sha256: digest::hex(secret.as_bytes()),
            user: new.user.clone(),
            teams: items(&new.teams)?,
            roles: items(&new.roles)?,
            scopes: items(&new.scopes)?,
            note: new.note.clone(),
            created_at: now,
            expires_at: now.saturating_add(new.lifetime.as_secs()),
            revoked_at: None,
        };
        Ok((key, text))
    }

    /// The digest of its secret.
    pub(super) fn digest(&self) -> Option<[u8; 32]> {
        let is_hexadecimal = self.sha256.bytes().all(|digit| digit.is_ascii_hexdigit());
        let mut digest = [0; 32];
        if !is_hexadecimal || self.sha256.len() != 2 * digest.len() {
            return None;
        }
        for (at, byte) in digest.iter_mut().enumerate() {
            let digits = self.sha256.get(2 * at..2 * at + 2)?;
            *byte = u8::from_str_radix(digits, 16).ok()?;
        }
        Some(digest)
    }

    /// When it ended, or will.
    #[must_use]
    pub fn ends_at(&self) -> u64 {
        self.revoked_at
            .map_or(self.expires_at, |at| at.min(self.expires_at))
    }

    fn is_forgotten(&self, now: u64) -> bool {
        self.ends_at().saturating_add(ENDED_KEPT_SECONDS) <= now
    }
}

fn too_many() -> FileError {
    FileError::new(format!(
        "there are {KEYS_MAX} API keys, and there can be no more"
    ))
}

/// The path of a file in the same directory, with this ending.
fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(ending);
    name.into()
}

/// A file that only its owner can read, made if it is not there.
fn private_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    options.open(path)
}
