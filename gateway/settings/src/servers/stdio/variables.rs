//! The environment of the processes of one server: a few names that every program needs, those that the settings
//! inherit, and those that they give a value. Nothing else of the gateway's environment reaches a child, and no value
//! is ever logged.

use std::fmt;

use crate::reader::{Reader, Reason};
use crate::rows::settings;
use crate::source::Environment;

/// Variables that a child inherits where nothing else is configured: what the official SDKs pass on, and what decides
/// about language, time and temporary files.
pub const INHERITED_DEFAULT: [&str; 11] = [
    "PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "USER", "LOGNAME", "SHELL", "TERM",
    "LC_CTYPE",
];

/// What the gateway's own variables start with.
const OWN_PREFIX: &str = "MOORING_";
/// The older name of one of them, which may hold a password.
const OWN_NAME: &str = "REDIS_URL";

/// Longest value in bytes; the system's own limit is four times that.
const VALUE_BYTES_MAX: usize = 32_768;
/// Longest name in bytes.
const NAME_BYTES_MAX: usize = 128;

settings! {
    /// The fields about variables.
    pub(in crate::servers) const ROWS {
        /// Environment variables of the program, such as its credentials. A value `env:NAME` is taken from the
        /// gateway's environment variable NAME. They win over inherited ones. Values are never logged.
        ENV = Map("servers.env", 128,
            "a table of at most 128 names of environment variables, each with a text of at most 32768 bytes or \"env:NAME\"")
            .unset("none; see `servers.inherit_env` for what the program gets all the same"),
        /// Further variables that the program inherits from the gateway, where they are set. It always inherits PATH,
        /// HOME, LANG, LC_ALL, LC_CTYPE, TZ, TMPDIR, USER, LOGNAME, SHELL and TERM, and never anything else.
        INHERIT_ENV = List("servers.inherit_env", 128, NAME_BYTES_MAX,
            "names of environment variables, such as HTTPS_PROXY; not REDIS_URL and the gateway's own, MOORING_*")
            .unset("no further ones"),
    }
}

/// The whole environment of a child. `Debug` shows names only.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ChildVariables {
    inherited: Vec<String>,
    given: Vec<(String, String)>,
}

impl ChildVariables {
    /// Names of the gateway's own variables that are passed on where they are set.
    pub fn inherited(&self) -> &[String] {
        &self.inherited
    }

    /// Names and values, which win over inherited ones. Values may be secrets.
    pub fn given(&self) -> &[(String, String)] {
        &self.given
    }
}

impl fmt::Debug for ChildVariables {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let given: Vec<&str> = self.given.iter().map(|(name, _)| name.as_str()).collect();
        formatter
            .debug_struct("ChildVariables")
            .field("inherited", &self.inherited)
            .field("given", &given)
            .finish()
    }
}

pub(in crate::servers) fn parse(reader: &mut Reader<'_>) -> ChildVariables {
    let mut inherited: Vec<String> = INHERITED_DEFAULT.map(str::to_owned).to_vec();
    inherited.extend(
        reader
            .list(&INHERIT_ENV, parse_inherited)
            .unwrap_or_default(),
    );
    let environment = reader.environment;
    let mut given = Vec::new();
    reader.map(&ENV, |name, text| {
        given.push((parse_name(name)?, parse_value(text, environment)?));
        Ok(())
    });
    ChildVariables { inherited, given }
}

/// The gateway's own variables hold its secrets, and a child that needs one of them is a mistake.
fn parse_inherited(text: &str) -> Result<String, Reason> {
    if text.starts_with(OWN_PREFIX) || text == OWN_NAME {
        return Err("it is the gateway's own, and may hold its secrets".to_owned());
    }
    parse_name(text)
}

fn parse_name(text: &str) -> Result<String, Reason> {
    let is_known = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    if text.starts_with(|first: char| first.is_ascii_digit())
        || text.is_empty()
        || text.len() > NAME_BYTES_MAX
        || !text.chars().all(is_known)
    {
        return Err(format!(
            "it cannot be the name of an environment variable: 1 to {NAME_BYTES_MAX} letters, digits and _, the first \
             no digit"
        ));
    }
    Ok(text.to_owned())
}

/// The reason never repeats the value.
fn parse_value(text: &str, environment: &Environment) -> Result<String, Reason> {
    let text = environment.resolve(text)?;
    if text.len() > VALUE_BYTES_MAX {
        return Err(format!("its value has {} bytes", text.len()));
    }
    if text.contains('\0') {
        return Err("its value has a NUL character".to_owned());
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_names_everything_that_is_inherited() {
        for name in INHERITED_DEFAULT {
            assert!(INHERIT_ENV.about.meaning.contains(name), "{name}");
        }
    }
}
