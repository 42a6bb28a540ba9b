//! The file of a key ring: reading and generating it.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use mooring_secrets::file::{self as secret_file, FileError};

/// Largest file: eight keys and room for comments.
const FILE_BYTES_MAX: u64 = 64 * 1024;

pub(super) fn read(path: &Path) -> Result<Vec<u8>, FileError> {
    secret_file::read(path, FILE_BYTES_MAX)
}

/// Creates a file with this key. If another process was faster, its file stays.
pub(super) fn generate(path: &Path, key: &[u8]) -> Result<(), FileError> {
    let failed = |error: io::Error| {
        FileError::because(
            format!("cannot make the key file {}", path.display()),
            error,
        )
    };
    let name = path
        .file_name()
        .ok_or_else(|| failed(io::ErrorKind::InvalidInput.into()))?;
    let mut new_name = name.to_owned();
    new_name.push(format!(".{:016x}.new", rand::random::<u64>()));
    let new = path.with_file_name(new_name);
    let made = write_key(&new, key).and_then(|()| match fs::hard_link(&new, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        linked => linked,
    });
    // A leftover temporary file would be harmless, so failing to remove it is ignored.
    let _ = fs::remove_file(&new);
    made.map_err(failed)
}

/// Writes the key to disk before the file has its final name, so the file is never incomplete.
fn write_key(path: &Path, key: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    let mut text = String::from(
        "# The key by which the gateways that share this store know each other. Keep it secret.\n",
    );
    for byte in key {
        text.push_str(&format!("{byte:02x}"));
    }
    text.push('\n');
    file.write_all(text.as_bytes())?;
    file.sync_all()
}
