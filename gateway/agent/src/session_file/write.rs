//! Writing the file: whole under its name, or not at all.
//!
//! Invariant: whoever opens the file finds the old one or the new one, whatever ends this process. Its owner alone can
//! read it: what an agent's session is resumed by is a secret.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::ser::Serializer;

use super::entry::Entry;
use mooring_store::rfc3339;

/// What its owner alone may do.
const MODE: u32 = 0o600;

/// Why the file was not written. What was there before is still there.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// What the name stands for is a directory, a pipe or the like.
    #[error("{} is not a regular file, so it is not replaced", path.display())]
    NotAFile {
        /// What was named.
        path: PathBuf,
    },
    /// It cannot be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

/// Entries in the file's form, oldest first: the server that reads it drops the first ones when it has too many.
#[must_use]
pub fn text(entries: &[Entry]) -> String {
    let mut oldest_first: Vec<&Entry> = entries.iter().collect();
    oldest_first.sort_by(|one, other| {
        let age = one.updated_at_ms.cmp(&other.updated_at_ms);
        age.then_with(|| one.parent.cmp(&other.parent))
    });
    // Texts alone are written, to memory: nothing of it can fail.
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

/// Writes entries to the file at `path`, in the place of what is there. A symbolic link stays one: what it points to is
/// replaced.
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
        // Its name may be left over then, and is in nobody's way.
        let _ = fs::remove_file(&new);
        return written;
    }
    sync_directory(target)
}

/// The bytes are on the disk before they have the name.
fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(MODE)
        .open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// And the name as well, before anybody is told.
fn sync_directory(of: &Path) -> io::Result<()> {
    match of.parent() {
        Some(parent) if parent != Path::new("") => File::open(parent)?.sync_all(),
        _ => File::open(".")?.sync_all(),
    }
}
