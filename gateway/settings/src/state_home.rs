//! Where a user's programs keep what outlives them, by the XDG base directory rule.

use std::path::PathBuf;

use super::source::Environment;
use super::value::Value;

/// `$XDG_STATE_HOME`, else `~/.local/state`; a relative value counts as unset.
pub(super) fn state_home(environment: &Environment) -> Option<PathBuf> {
    absolute(environment, "XDG_STATE_HOME")
        .or_else(|| Some(home(environment)?.join(".local/state")))
}

/// `$HOME`; a relative value counts as unset.
pub(super) fn home(environment: &Environment) -> Option<PathBuf> {
    absolute(environment, "HOME")
}

/// The path that a variable holds; none where it is unset, relative or no text.
pub(super) fn absolute(environment: &Environment, name: &str) -> Option<PathBuf> {
    match environment.get(name) {
        Some(Value::Word(text)) => Some(PathBuf::from(text)).filter(|path| path.is_absolute()),
        _ => None,
    }
}
