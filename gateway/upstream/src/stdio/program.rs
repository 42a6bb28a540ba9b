//! What can be said of a server's program that did not get through its handshake.
//!
//! Invariant: of what the program wrote, one line is repeated: shortened, and without the values of its variables and the
//! credentials of URLs.

use std::time::Duration;

use tokio::time::timeout;

use super::command::Environment;
use super::stderr::RecentLines;
use crate::connection::Connection;
use crate::{ContactOutcome, ExchangeError, FailureCause};
use mooring_settings::INHERITED_DEFAULT;

/// How long is waited for the word why a connection ended, and again for the program's last line.
const LAST_WORDS_WITHIN: Duration = Duration::from_secs(1);
/// Most characters of the line that are repeated.
const LINE_CHARS_MAX: usize = 300;
/// Values that are shorter are words like `true`, and no secrets.
const SECRET_CHARS_MIN: usize = 6;

/// A program that was started for a session.
#[derive(Debug)]
pub struct StartedProgram {
    stderr: RecentLines,
    secrets: Vec<String>,
}

impl StartedProgram {
    /// A program that has these variables.
    pub fn new(stderr: RecentLines, environment: &Environment) -> Self {
        let variables = environment.resolve(|name| std::env::var_os(name));
        let secrets = variables
            .into_iter()
            .filter(|(name, _)| !INHERITED_DEFAULT.contains(&name.as_str()))
            .map(|(_, value)| value)
            .filter(|value| value.chars().count() >= SECRET_CHARS_MIN)
            .collect();
        Self { stderr, secrets }
    }

    /// Why the handshake over `connection` failed.
    pub async fn explain(&self, connection: &Connection, error: &ExchangeError) -> FailureCause {
        let is_late = matches!(error, ExchangeError::TimedOut(_));
        if !is_late {
            // One that still runs has said something that is no answer.
            let _ = timeout(LAST_WORDS_WITHIN, connection.ended()).await;
        }
        let (outcome, text) = match connection.end() {
            Some(end) => {
                let _ = timeout(LAST_WORDS_WITHIN, connection.gone()).await;
                let text = format!("{end}, before it answered `initialize`");
                (ContactOutcome::NotStarted, text)
            }
            None => {
                let cause = FailureCause::from(error);
                (cause.outcome, cause.text.into())
            }
        };
        let line = telling_line(&self.stderr.lines()).map(|line| shown(line, &self.secrets));
        FailureCause {
            outcome,
            text: text.into(),
            last_line: line.map(Into::into),
        }
    }
}

/// The last line that speaks of an error, because some runtimes write their version after it; else the last one.
fn telling_line(lines: &[String]) -> Option<&str> {
    let speaks_of_error = |line: &&String| line.to_ascii_lowercase().contains("error");
    let telling = lines.iter().rev().find(speaks_of_error);
    telling.or(lines.last()).map(String::as_str)
}

/// The line as it may be repeated.
fn shown(line: &str, secrets: &[String]) -> String {
    let mut line = line.replace(char::is_control, " ");
    for secret in secrets {
        line = line.replace(secret.as_str(), "***");
    }
    let words: Vec<String> = line.split(' ').map(without_credentials).collect();
    words.join(" ").chars().take(LINE_CHARS_MAX).collect()
}

/// A word whose URL loses its user and password.
fn without_credentials(word: &str) -> String {
    let Some((scheme, rest)) = word.split_once("://") else {
        return word.to_owned();
    };
    match rest.rsplit_once('@') {
        Some((_, host)) => format!("{scheme}://***@{host}"),
        None => word.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_repeated_without_secrets() {
        let secrets = ["s3cret-value".to_owned()];
        for (line, expected) in [
            (
                "Error: missing API_KEY\u{1b}[0m",
                "Error: missing API_KEY [0m",
            ),
            ("key s3cret-value is bad", "key *** is bad"),
            (
                "cannot open postgres://u:p@db/x now",
                "cannot open postgres://***@db/x now",
            ),
        ] {
            assert_eq!(shown(line, &secrets), expected);
        }
        assert_eq!(shown(&"x".repeat(5_000), &[]).len(), LINE_CHARS_MAX);
        let lines = [
            "Error: missing API_KEY",
            "    at main.js:1",
            "Node.js v22.9.0",
        ];
        assert_eq!(
            telling_line(&lines.map(str::to_owned)),
            Some("Error: missing API_KEY")
        );
        assert_eq!(telling_line(&["a", "b"].map(str::to_owned)), Some("b"));
    }
}
