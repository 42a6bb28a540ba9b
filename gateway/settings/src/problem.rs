//! What is wrong with the settings, all of it at once. Every problem names the key as the person wrote it,
//! where it stands, the value (never a secret), and what is allowed instead.

use std::fmt;

use super::setting::Disclosure;

/// Longest piece of a bad value that a message repeats, in characters.
const SHOWN_CHARACTERS_MAX: usize = 120;

/// One refused setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The key in the table (`affinity.ttl_seconds`), or the unknown name itself.
    pub key: String,
    /// The name as it was written: the key, an environment variable or a flag.
    pub written_as: String,
    /// Where it stands: `mooring.toml, line 7`, `environment`, `command line`.
    pub place: String,
    /// The value, quoted and without secrets; empty where there is none to show.
    pub value: String,
    /// Why it is refused, where "allowed" does not say it.
    pub reason: String,
    /// What is allowed instead; empty where the reason says it.
    pub allowed: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.written_as)?;
        if !self.value.is_empty() {
            write!(formatter, " = {}", self.value)?;
        }
        if !self.place.is_empty() {
            write!(formatter, "  ({})", self.place)?;
        }
        if !self.reason.is_empty() {
            write!(formatter, "\n    {}", self.reason)?;
        }
        if !self.allowed.is_empty() {
            write!(formatter, "\n    allowed: {}", self.allowed)?;
        }
        Ok(())
    }
}

/// The settings were refused; holds every problem found, in the order of the table.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SettingsError {
    problems: Vec<Problem>,
}

impl SettingsError {
    /// Every problem found.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    pub(super) fn push(&mut self, problem: Problem) {
        self.problems.push(problem);
    }

    /// Notes what is wrong with a key that is in no row of the table.
    pub(super) fn refuse(
        &mut self,
        key: impl Into<String>,
        place: impl Into<String>,
        value: impl Into<String>,
        reason: impl Into<String>,
        allowed: impl Into<String>,
    ) {
        let key = key.into();
        self.push(Problem {
            written_as: key.clone(),
            key,
            place: place.into(),
            value: value.into(),
            reason: reason.into(),
            allowed: allowed.into(),
        });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.problems.is_empty()
    }

    /// Whether a value of this key was refused, so that a check across keys can leave it out.
    pub(super) fn concerns(&self, key: &str) -> bool {
        self.problems.iter().any(|problem| problem.key == key)
    }
}

impl fmt::Display for SettingsError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.problems.len() {
            1 => formatter.write_str("1 setting is refused and nothing was started")?,
            count => write!(
                formatter,
                "{count} settings are refused and nothing was started"
            )?,
        }
        for problem in &self.problems {
            write!(formatter, "\n  {problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for SettingsError {}

/// A value as an error message may show it: quoted, cut, and without credentials.
pub(super) fn shown(text: &str, disclosure: Disclosure) -> String {
    let text = match disclosure {
        Disclosure::Open => text.to_owned(),
        Disclosure::Credentials => without_credentials(text),
        Disclosure::Hidden => return "***".to_owned(),
    };
    if text.chars().count() <= SHOWN_CHARACTERS_MAX {
        return format!("{text:?}");
    }
    let start: String = text.chars().take(SHOWN_CHARACTERS_MAX).collect();
    format!("{start:?}... ({} bytes)", text.len())
}

/// Removes from `redis://user:secret@host` everything between the scheme and the last `@`, and the query, which carries
/// the password of a Unix-socket URL. If these parts cannot be distinguished, only the scheme is left. In a command,
/// `@` begins the scope of a package.
pub(super) fn without_credentials(text: &str) -> String {
    if !text.contains("://") && text.matches('@').count() == 1 && text.contains(" @") {
        return text.to_owned();
    }
    let scheme = text
        .split_once("://")
        .map_or(String::new(), |(scheme, _)| format!("{scheme}://"));
    match (text.rsplit_once('@'), text.split_once('?')) {
        (None, None) => text.to_owned(),
        (None, Some((address, _))) => format!("{address}?***"),
        (Some((before, _)), _) if before.contains('?') => format!("{scheme}***"),
        (Some((_, host)), None) => format!("{scheme}***@{host}"),
        (Some((_, host)), Some(_)) => {
            let host = host.split_once('?').map_or(host, |(host, _)| host);
            format!("{scheme}***@{host}?***")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_never_shown() {
        #[track_caller]
        fn check(value: &str, expected: &str) {
            assert_eq!(without_credentials(value), expected);
        }
        check("redis://host/0", "redis://host/0");
        check("redis://:secret@host/0", "redis://***@host/0");
        check("redis://u:p@ss@host", "redis://***@host");
        check(
            "unix:///run/redis.sock?pass=secret",
            "unix:///run/redis.sock?***",
        );
        check("redis://u:p?x@host", "redis://***");
        check("unix:///run/redis.sock?pass=a@b", "unix://***");
        check("redis://:p@host?timeout=1", "redis://***@host?***");
        check("secret@host", "***@host");
        check("npx -y @scope/server", "npx -y @scope/server");
        check("npx @scope/server ada:secret@host", "***@host");
    }

    #[test]
    fn long_values_are_cut() {
        let long = "x".repeat(1000);
        assert!(shown(&long, Disclosure::Open).len() < 200);
    }
}
