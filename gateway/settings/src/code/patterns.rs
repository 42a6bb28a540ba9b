//! The settings of the scan for dangerous patterns: lists in the place of the built-in ones.

use std::ops::Deref;

use regex::{Regex, RegexBuilder};

use crate::globs::{GLOB_BYTES_MAX, GLOBS_MAX};
use crate::reader::Reason;
use crate::rows::settings;

/// Largest compiled pattern in bytes: a list of them must not take the gateway's memory.
const COMPILED_BYTES_MAX: usize = 1024 * 1024;

const SHAPE: &str =
    "regular expressions of at most 512 bytes, without look-around and back-references";
const UNSET: &str = "the built-in list; an empty list refuses nothing";

settings! {
    /// Patterns of code that is refused before it runs. `None` means the built-in ones, an empty list none at all.
    #[derive(Default)]
    pub struct DangerousPatterns {
        /// Python code in which one of these patterns is found is refused before it runs, with the pattern named.
        pub python: Option<Vec<TextPattern>> =
            List("code.python_dangerous_patterns", GLOBS_MAX, GLOB_BYTES_MAX, SHAPE)
            .contextforge_name("CODE_EXECUTION_PYTHON_DANGEROUS_PATTERNS").unset(UNSET)
            => |reader, row| reader.list(row, compile),
        /// TypeScript and JavaScript code in which one of these patterns is found is refused before it runs, with the
        /// pattern named.
        pub typescript: Option<Vec<TextPattern>> =
            List("code.typescript_dangerous_patterns", GLOBS_MAX, GLOB_BYTES_MAX, SHAPE)
            .contextforge_name("CODE_EXECUTION_TYPESCRIPT_DANGEROUS_PATTERNS").unset(UNSET)
            => |reader, row| reader.list(row, compile),
    }
}

/// A regular expression of the settings. Two of the same text are equal.
#[derive(Debug, Clone)]
pub struct TextPattern(Regex);

impl PartialEq for TextPattern {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}

impl Eq for TextPattern {}

impl From<Regex> for TextPattern {
    fn from(pattern: Regex) -> Self {
        Self(pattern)
    }
}

impl Deref for TextPattern {
    type Target = Regex;

    fn deref(&self) -> &Regex {
        &self.0
    }
}

/// The expression that a text is, where it is one and not too large.
pub(super) fn compile(text: &str) -> Result<TextPattern, Reason> {
    RegexBuilder::new(text)
        .size_limit(COMPILED_BYTES_MAX)
        .build()
        .map(TextPattern)
        .map_err(|error| regex_reason(&error))
}

/// Why an expression is none. The library draws a caret under the mistake; its last line says in words what it is.
fn regex_reason(error: &regex::Error) -> Reason {
    let drawn = error.to_string();
    let words = drawn.lines().last().unwrap_or_default();
    words.strip_prefix("error: ").unwrap_or(words).to_owned()
}
