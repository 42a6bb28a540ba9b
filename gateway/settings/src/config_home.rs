//! Where a user's programs keep what they are told, by the XDG base directory rule.

use std::path::PathBuf;

use super::source::Environment;
use super::state_home::{absolute, home};

/// `$XDG_CONFIG_HOME`, else `~/.config`; a relative value counts as unset.
pub(super) fn config_home(environment: &Environment) -> Option<PathBuf> {
    absolute(environment, "XDG_CONFIG_HOME").or_else(|| Some(home(environment)?.join(".config")))
}
