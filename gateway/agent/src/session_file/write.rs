//! Writes the file atomically.
//!
//! Invariant: a reader finds the old file or the new one, however this process ends. Only its owner can read it: the id
//! that resumes an agent's session is a secret.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::ser::Serializer;

use super::entry::Entry;
use mooring_store::rfc3339;

/// Read and write for the owner only.
const MODE: u32 = 0o600;

/// Why the file was not written. The existing file is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The path is a directory, a pipe or similar.
    #[error("{} is not a regular file, so it is not replaced", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// It cannot be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// Entries in the file's format, oldest first: the server that reads it drops the first ones if it has too many.
#[must_use]
pub fn text(entries: &[Entry]) -> String {
    let mut oldest_first: Vec<&Entry> = entries.iter().collect();
    oldest_first.sort_by(|one, other| {
        let age = one.updated_at_ms.cmp(&other.updated_at_ms);
        age.then_with(|| one.parent.cmp(&other.parent))
    });
    // Only strings are serialized, into memory: this does not fail.
    let mut text = serde_json::to_string_pretty(&Members(oldest_first)).unwrap_or_default();
    text.push('\n');
    text
}

struct Members<'a>(Vec<&'a Entry>);

impl Serialize for Members<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let member = |entry: &&Entry| {
            let value = EntryValue {
                session: entry.agent_session.clone(),
                updated_at: rfc3339(entry.updated_at_ms),
            };
            (entry.parent.clone(), value)
        };
        serializer.collect_map(self.0.iter().map(member))
    }
}

#[derive(Serialize)]
struct EntryValue {
    #[serde(rename = "claudeSessionId")]
    session: String,
    #[serde(rename = "updatedAt")]
    updated_at: String,
}

/// Writes entries to the file at `path`, replacing it. If the path is a symbolic link, its target is replaced.
///
/// # Errors
/// See [`WriteError`].
pub fn write(path: &Path, entries: &[Entry]) -> Result<(), WriteError> {
    let failed = |source| WriteError::Write {
        path: path.to_owned(),
        source,
    };
    let target = match fs::canonicalize(path) {
        Ok(target) if target.is_file() => target,
        Ok(_) => {
            return Err(WriteError::NotAFile {
                path: path.to_owned(),
            });
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => path.to_owned(),
        Err(error) => return Err(failed(error)),
    };
    replace(&target, text(entries).as_bytes()).map_err(failed)
}

fn replace(target: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut name = OsString::from(".");
    name.push(target.file_name().ok_or(io::ErrorKind::InvalidInput)?);
    name.push(format!(".{:016x}.new", rand::random::<u64>()));
    let new = target.with_file_name(name);
    let written = write_new(&new, bytes).and_then(|()| fs::rename(&new, target));
    if written.is_err() {
        // The temporary file may be left over then, which is harmless.
        let _ = fs::remove_file(&new);
        return written;
    }
    sync_directory(target)
}

/// Writes the content to disk before the file gets its name.
fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(MODE)
        .open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Writes the directory entry to disk as well.
fn sync_directory(of: &Path) -> io::Result<()> {
    match of.parent() {
        Some(parent) if parent != Path::new("") => File::open(parent)?.sync_all(),
        _ => File::open(".")?.sync_all(),
    }
}
