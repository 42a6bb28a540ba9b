//! The file of a key ring: its format, and generating it.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::{KEY_BYTES_MIN, KeyRing, LineProblem, TextError};
use mooring_secrets::file::{self as secret_file, SecretFileError};

/// Largest file: eight keys and room for comments.
const FILE_BYTES_MAX: u64 = 64 * 1024;

/// Why there is no key ring.
#[derive(Debug, thiserror::Error)]
pub enum KeyRingError {
    /// The file cannot be read, or other users can read it too.
    #[error(transparent)]
    File(#[from] SecretFileError),
    /// A line is not a key.
    #[error("the key file {}, line {line}: {problem}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        problem: LineProblem,
    },
    /// The file contains no key.
    #[error("the key file {} has no key", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// The file did not exist and could not be created.
    #[error("cannot make the key file {}", path.display())]
    Generate {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        error: io::Error,
    },
}

pub(super) fn read(path: &Path) -> Result<KeyRing, KeyRingError> {
    let text = secret_file::read(path, FILE_BYTES_MAX)?;
    KeyRing::parse(&text).map_err(|error| match error {
        TextError::Line { line, problem } => KeyRingError::Line {
            path: path.to_owned(),
            line,
            problem,
        },
        TextError::Empty => KeyRingError::Empty {
            path: path.to_owned(),
        },
    })
}

/// Creates a file with one random key. If another process was faster, its file stays.
pub(super) fn generate(path: &Path) -> Result<(), KeyRingError> {
    let failed = |error| KeyRingError::Generate {
        path: path.to_owned(),
        error,
    };
    let name = path
        .file_name()
        .ok_or_else(|| failed(io::ErrorKind::InvalidInput.into()))?;
    let mut new_name = name.to_owned();
    new_name.push(format!(".{:016x}.new", rand::random::<u64>()));
    let new = path.with_file_name(new_name);
    let made = write_key(&new).and_then(|()| match fs::hard_link(&new, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        linked => linked,
    });
    // A leftover temporary file would be harmless, so failing to remove it is ignored.
    let _ = fs::remove_file(&new);
    made.map_err(failed)
}

/// Writes the key to disk before the file has its final name, so the file is never incomplete.
fn write_key(path: &Path) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    let mut text = String::from(
        "# The key by which the gateways that share this store know each other. Keep it secret.\n",
    );
    for byte in rand::random::<[u8; KEY_BYTES_MIN]>() {
        text.push_str(&format!("{byte:02x}"));
    }
    text.push('\n');
    file.write_all(text.as_bytes())?;
    file.sync_all()
}
