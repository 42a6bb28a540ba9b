//! Paths in settings: absolute, so that they mean the same wherever the gateway is started. Those that need not be
//! written follow the XDG base directory rule.

use std::path::PathBuf;

use super::reader::Reason;
use super::source::Environment;
use super::value::Value;

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

/// `$XDG_STATE_HOME`, where a user's programs keep what outlives them, else `~/.local/state`.
pub(super) fn state_home(environment: &Environment) -> Option<PathBuf> {
    variable(environment, "XDG_STATE_HOME")
        .or_else(|| Some(home(environment)?.join(".local/state")))
}

/// `$XDG_CONFIG_HOME`, the directory of the user's configuration files, else `~/.config`.
pub(super) fn config_home(environment: &Environment) -> Option<PathBuf> {
    variable(environment, "XDG_CONFIG_HOME").or_else(|| Some(home(environment)?.join(".config")))
}

/// `$HOME`.
pub(super) fn home(environment: &Environment) -> Option<PathBuf> {
    variable(environment, "HOME")
}

/// The path in a variable; none if it is unset, relative or not text.
fn variable(environment: &Environment, name: &str) -> Option<PathBuf> {
    match environment.get(name) {
        Some(Value::Word(text)) => Some(PathBuf::from(text)).filter(|path| path.is_absolute()),
        _ => None,
    }
}
