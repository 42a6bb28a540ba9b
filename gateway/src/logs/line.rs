//! The format of a log line: `TIME LEVEL TARGET: MESSAGE FIELD=VALUE ...`, or one JSON object with the same.
//!
//! Invariant: a line is one line, and in text a value with a space, a quote or an equals sign is quoted, so that no value
//! looks like a field.

use std::fmt::{self, Write as _};

use tracing::Level;
use tracing::field::{Field, Visit};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime};

use super::value::escape_value;

/// The field with the configured server that a line is about.
pub(super) const SERVER_FIELD: &str = "server";
/// The field with the digest of the user that a line is about.
pub(super) const USER_FIELD: &str = "user";

/// How lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineFormat {
    /// Text.
    Text,
    /// Text for a terminal, with the level in its color.
    ColoredText,
    /// One JSON object for each line.
    Json,
}

/// The fields of an event or a span, formatted.
#[derive(Debug)]
pub(super) struct LineFields {
    format: LineFormat,
    message: String,
    /// Each with the separator before it.
    others: String,
    /// The value of the field `server`.
    server: Option<String>,
}

impl LineFields {
    /// No field yet.
    pub(super) fn new(format: LineFormat) -> Self {
        Self {
            format,
            message: String::new(),
            others: String::new(),
            server: None,
        }
    }

    /// The configured server that the line is about.
    pub(super) fn server(&self) -> Option<&str> {
        self.server.as_deref()
    }

    /// Adds the fields of a span around the event.
    pub(super) fn append(&mut self, span: &Self) {
        self.others.push_str(&span.others);
    }

    /// Sets what happened.
    pub(super) fn push_message(&mut self, message: fmt::Arguments<'_>) {
        self.push_value("message", message);
    }

    /// Adds a text.
    pub(super) fn push_text(&mut self, name: &str, text: &str) {
        self.push_value(name, format_args!("{text}"));
    }

    /// Adds a number.
    pub(super) fn push_number(&mut self, name: &str, number: impl fmt::Display) {
        self.push_name(name);
        // Writing to a string cannot fail.
        let _ = write!(self.others, "{number}");
    }

    /// The line, with its end.
    pub(super) fn to_line(&self, level: Level, target: &str) -> String {
        let mut line = String::with_capacity(160);
        let time = |line: &mut String| {
            let _ = SystemTime.format_time(&mut Writer::new(line));
        };
        match self.format {
            LineFormat::Text | LineFormat::ColoredText => {
                time(&mut line);
                let (begin, end) = match self.format {
                    LineFormat::ColoredText => (color(level), "\x1b[0m"),
                    _ => ("", ""),
                };
                let _ = write!(line, " {begin}{level:>5}{end} {target}: {}", self.message);
                line.push_str(&self.others);
                line.push('\n');
            }
            LineFormat::Json => {
                line.push_str("{\"timestamp\":\"");
                time(&mut line);
                let _ = write!(line, "\",\"level\":\"{level}\",\"message\":");
                push_quoted(&mut line, &self.message, &['"', '\\']);
                line.push_str(&self.others);
                let _ = writeln!(line, ",\"target\":\"{target}\"}}");
            }
        }
        line
    }

    fn push_name(&mut self, name: &str) {
        let name = name.strip_prefix("r#").unwrap_or(name);
        // Writing to a string cannot fail.
        let _ = match self.format {
            LineFormat::Text | LineFormat::ColoredText => write!(self.others, " {name}="),
            LineFormat::Json => write!(self.others, ",\"{name}\":"),
        };
    }

    fn push_value(&mut self, name: &str, value: fmt::Arguments<'_>) {
        // Records of the crate `log` have their origin in fields, which the target has as well.
        if name.starts_with("log.") && name != "log.target" {
            return;
        }
        let value = escape_value(name, value);
        if name == "message" {
            self.message = value;
            return;
        }
        self.push_name(name);
        match self.format {
            LineFormat::Json => push_quoted(&mut self.others, &value, &['"', '\\']),
            _ if needs_quotes(&value) => push_quoted(&mut self.others, &value, &['"']),
            _ => self.others.push_str(&value),
        }
        if name == SERVER_FIELD {
            self.server = Some(value);
        }
    }
}

impl Visit for LineFields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        match value.is_finite() {
            true => self.push_number(field.name(), value),
            false => self.push_value(field.name(), format_args!("{value}")),
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.push_number(field.name(), value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.push_number(field.name(), value);
    }

    fn record_i128(&mut self, field: &Field, value: i128) {
        self.push_number(field.name(), value);
    }

    fn record_u128(&mut self, field: &Field, value: u128) {
        self.push_number(field.name(), value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.push_number(field.name(), value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.push_value(field.name(), format_args!("{value}"));
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.push_value(field.name(), format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.push_value(field.name(), format_args!("{value:?}"));
    }
}

fn needs_quotes(value: &str) -> bool {
    value.is_empty() || value.contains([' ', '"', '='])
}

/// Adds an escaped value in quotes; `special` are the characters that quotes give a meaning to.
fn push_quoted(line: &mut String, value: &str, special: &[char]) {
    line.push('"');
    for character in value.chars() {
        if special.contains(&character) {
            line.push('\\');
        }
        line.push(character);
    }
    line.push('"');
}

const fn color(level: Level) -> &'static str {
    match level {
        Level::ERROR => "\x1b[31m",
        Level::WARN => "\x1b[33m",
        Level::INFO => "\x1b[32m",
        Level::DEBUG => "\x1b[34m",
        Level::TRACE => "\x1b[35m",
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    fn line(format: LineFormat, value: &str) -> String {
        let mut fields = LineFields::new(format);
        fields.push_value("message", format_args!("a call \"failed\""));
        fields.push_value("tool", format_args!("{value}"));
        fields.push_number("count", 3);
        fields.to_line(Level::WARN, "mooring_gateway::http")
    }

    #[test]
    fn a_value_never_looks_like_a_field_or_a_line() {
        #[track_caller]
        fn check(value: &str, expected: &str) {
            let line = line(LineFormat::Text, value);
            let (_, rest) = line.split_once(' ').unwrap();
            let expected =
                format!(" WARN mooring_gateway::http: a call \"failed\" tool={expected} count=3\n");
            assert_eq!(rest, expected);
        }
        check("add", "add");
        check("", "\"\"");
        check("add session=1", "\"add session=1\"");
        check("add\" session=1", r#""add\" session=1""#);
        check("add\n2026 ERROR x", r#""add\n2026 ERROR x""#);
    }

    #[test]
    fn a_json_line_is_one_valid_object() {
        for value in ["add", "\"},{\"", "a\\", "a\n\x1b\u{2028}b", ""] {
            let line = line(LineFormat::Json, value);
            assert_eq!(line.lines().count(), 1);
            let object: serde_json::Value = serde_json::from_str(&line).unwrap();
            assert_eq!(object.get("message").unwrap(), "a call \"failed\"");
            assert_eq!(object.get("level").unwrap(), "WARN");
            assert_eq!(object.get("target").unwrap(), "mooring_gateway::http");
            assert_eq!(object.get("count").unwrap(), 3);
            let expected = escape_value("tool", format_args!("{value}"));
            assert_eq!(object.get("tool").unwrap(), expected.as_str());
        }
    }
}
