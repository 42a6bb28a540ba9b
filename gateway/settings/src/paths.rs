//! Paths in settings: absolute, so that they mean the same wherever the gateway is started.

use std::path::PathBuf;

use super::reader::Reason;

/// What a setting that names a file allows.
pub(super) const ABSOLUTE_FILE: &str = "an absolute path of a file";
/// What a setting that names a directory allows.
pub(super) const ABSOLUTE_DIRECTORY: &str = "an absolute path of a directory";
/// Longest path in bytes: the system's own limit.
pub(super) const PATH_BYTES_MAX: usize = 4096;

/// The absolute path of anything.
pub(super) fn absolute(text: &str) -> Result<PathBuf, Reason> {
    let path = PathBuf::from(text);
    if !path.is_absolute() {
        return Err("it is relative, and would depend on where the gateway was started".to_owned());
    }
    Ok(path)
}

/// The absolute path of a file, which may not exist yet.
pub(super) fn absolute_file(text: &str) -> Result<PathBuf, Reason> {
    let path = absolute(text)?;
    if path.file_name().is_none() || text.ends_with('/') {
        return Err("it names a directory".to_owned());
    }
    Ok(path)
}
