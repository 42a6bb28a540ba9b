//! Explains why the handshake with a server's program failed.
//!
//! Invariant: only one line of the program's output is repeated, shortened and without the values of its variables or
//! credentials in URLs.

use std::time::Duration;

use tokio::time::timeout;

use super::command::Environment;
use super::stderr::RecentLines;
use crate::connection::Connection;
use crate::{ContactOutcome, ExchangeError, FailureCause};
use mooring_settings::INHERITED_DEFAULT;

/// How long to wait for the reason of the end, and then for the end of stderr.
const END_WITHIN: Duration = Duration::from_secs(1);
/// Most characters of the line.
const LINE_CHARS_MAX: usize = 300;
/// Shorter values are words like `true` rather than secrets.
const SECRET_CHARS_MIN: usize = 6;

/// A program started for a session.
#[derive(Debug)]
pub struct StartedProgram {
    stderr: RecentLines,
    secrets: Vec<String>,
}

impl StartedProgram {
    /// A program with these variables.
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
            // If it is still running, its answer was invalid.
            let _ = timeout(END_WITHIN, connection.ended()).await;
        }
        let (outcome, text) = match connection.end() {
            Some(end) => {
                let _ = timeout(END_WITHIN, connection.gone()).await;
                let text = format!("{end}, before it answered `initialize`");
                (ContactOutcome::NotStarted, text)
            }
            None => {
                let cause = FailureCause::from(error);
                (cause.outcome, cause.text.into())
            }
        };
        let line = relevant_line(&self.stderr.lines()).map(|line| redacted(line, &self.secrets));
        FailureCause {
            outcome,
            text: text.into(),
            last_line: line.map(Into::into),
        }
    }
}

/// The last line that mentions an error, because some runtimes print their version after it; otherwise the last line.
fn relevant_line(lines: &[String]) -> Option<&str> {
    let speaks_of_error = |line: &&String| line.to_ascii_lowercase().contains("error");
    let telling = lines.iter().rev().find(speaks_of_error);
    telling.or(lines.last()).map(String::as_str)
}

/// The line, shortened and without secrets.
fn redacted(line: &str, secrets: &[String]) -> String {
    let mut line = line.replace(char::is_control, " ");
    for secret in secrets {
        line = line.replace(secret.as_str(), "***");
    }
    let words: Vec<String> = line.split(' ').map(without_credentials).collect();
    words.join(" ").chars().take(LINE_CHARS_MAX).collect()
}

/// A word; if it is a URL, without user and password.
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
            assert_eq!(redacted(line, &secrets), expected);
        }
        assert_eq!(redacted(&"x".repeat(5_000), &[]).len(), LINE_CHARS_MAX);
        let lines = [
            "Error: missing API_KEY",
            "    at main.js:1",
            "Node.js v22.9.0",
        ];
        assert_eq!(
            relevant_line(&lines.map(str::to_owned)),
            Some("Error: missing API_KEY")
        );
        assert_eq!(relevant_line(&["a", "b"].map(str::to_owned)), Some("b"));
    }
}
