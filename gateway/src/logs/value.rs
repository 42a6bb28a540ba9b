//! A value as it may stand in a log line: without control characters, and cut.
//!
//! Invariant: only fields of our own may be long. A field that is not listed here counts as named by an outsider.

use std::fmt::{self, Write as _};

/// Most characters of a value that may come from outside: names of tools and methods, ids, addresses.
const OUTSIDE_CHARACTERS_MAX: usize = 64;
/// Most characters of a message, and of the fields below. Causes quote outsiders, but in sentences of our own.
const OWN_CHARACTERS_MAX: usize = 1024;
/// Reasons, values of settings, and what a server's program writes for its operator.
const OWN_FIELDS: &[&str] = &[
    "advice",
    "base_dir",
    "basis",
    "cause",
    "detail",
    "end",
    "error",
    "file",
    "from",
    "hook",
    "instance",
    "layers",
    "line",
    "location",
    "message",
    "moved_to",
    "operator",
    "outcome",
    "prefixes",
    "problem",
    "reason",
    "refusal",
    "stderr",
    "subject",
    "swept",
    "to",
    "violation",
    "why",
];
/// Marks a cut.
const CUT_MARK: char = '…';

/// Formats the value of a field: escaped as in a Rust string, except for quotes, and cut.
pub(super) fn escape_value(field: &str, value: fmt::Arguments<'_>) -> String {
    let mut escaped = EscapedValue {
        text: String::new(),
        characters_left: match OWN_FIELDS.contains(&field) {
            true => OWN_CHARACTERS_MAX,
            false => OUTSIDE_CHARACTERS_MAX,
        },
        is_cut: false,
    };
    // Its only error says that the value was cut.
    let _ = escaped.write_fmt(value);
    escaped.text
}

struct EscapedValue {
    text: String,
    characters_left: usize,
    is_cut: bool,
}

impl fmt::Write for EscapedValue {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        for character in part.chars() {
            let Some(left) = self.characters_left.checked_sub(1) else {
                // A value may go on after an error.
                if !self.is_cut {
                    self.is_cut = true;
                    self.text.push(CUT_MARK);
                }
                return Err(fmt::Error);
            };
            self.characters_left = left;
            match character {
                '"' | '\'' | ' '..='~' if character != '\\' => self.text.push(character),
                // Escapes what is not printable, also marks that turn the direction of text.
                _ => self.text.extend(character.escape_debug()),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(value: &str, expected: &str) {
        assert_eq!(escape_value("tool", format_args!("{value}")), expected);
    }

    #[test]
    fn nothing_in_a_value_moves_the_cursor_or_ends_the_line() {
        check("plain", "plain");
        check("it's \"quoted\"", "it's \"quoted\"");
        check("größe 大", "größe 大");
        check("a\nb\r\tc\0", r"a\nb\r\tc\0");
        check("a\\nb", r"a\\nb");
        check("\x1b[31m\x07\x7f\u{9b}", r"\u{1b}[31m\u{7}\u{7f}\u{9b}");
        check("\u{202e}\u{2028}\u{200b}", r"\u{202e}\u{2028}\u{200b}");
    }

    #[test]
    fn values_of_outsiders_are_cut_sooner_than_causes() {
        let long = "é".repeat(1 << 20);
        let tool = escape_value("tool", format_args!("{long}"));
        assert_eq!(tool, format!("{}…", "é".repeat(64)));
        let cause = escape_value("cause", format_args!("{long}{long}"));
        assert_eq!(cause.chars().count(), 1025);
        check(&"x".repeat(64), &"x".repeat(64));
    }

    #[test]
    fn a_value_that_goes_on_after_an_error_stays_cut() {
        struct Stubborn;
        impl fmt::Display for Stubborn {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                for _ in 0..1000 {
                    let _ = formatter.write_str("ab");
                }
                Ok(())
            }
        }
        let text = escape_value("tool", format_args!("{Stubborn}"));
        assert_eq!(text, format!("{}…", "ab".repeat(32)));
    }
}
