//! Where a user's programs keep what outlives them, by the XDG base directory rule.

use std::path::PathBuf;

use super::source::{Environment, Value};

/// `$XDG_STATE_HOME`, else `~/.local/state`; a relative value counts as unset.
pub(super) fn state_home(environment: &Environment) -> Option<PathBuf> {
    let absolute = |name: &str| match environment.get(name) {
        Some(Value::Word(text)) => Some(PathBuf::from(text)).filter(|path| path.is_absolute()),
        _ => None,
    };
    absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")))
}
