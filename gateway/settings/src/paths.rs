//! Paths in settings: absolute, so that they mean the same wherever the gateway is started.

use std::path::PathBuf;

use super::reader::Reason;

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
