//! Which runtimes a policy allows.
//!
//! Invariant: code runs by a runtime of the list, or not at all. The file tools need none.

use std::fmt;

use crate::Language;
use crate::reader::{Reader, Reason};
use crate::setting::List;

/// What runs code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeRuntime {
    /// `python3`, for Python.
    Python,
    /// `deno`, for TypeScript and JavaScript.
    Deno,
    /// The one-line shell.
    Shell,
}

impl CodeRuntime {
    /// Every runtime.
    pub const ALL: [Self; 3] = [Self::Python, Self::Deno, Self::Shell];

    /// The word of settings, records and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Python => "python",
            Self::Deno => "deno",
            Self::Shell => "shell",
        }
    }

    /// What runs this language.
    #[must_use]
    pub const fn of(language: Language) -> Self {
        match language {
            Language::Python => Self::Python,
            Language::TypeScript => Self::Deno,
        }
    }
}

impl fmt::Display for CodeRuntime {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// The allowed words, as the end of the sentence "allowed: a list of ...".
pub(super) const SHAPE: &str =
    "python, deno and shell, the runtime of code without a language among them";

/// Reads the list; without one, every runtime is allowed. `language` is what code without a language is taken for.
pub(super) fn parse_runtimes(
    reader: &mut Reader<'_>,
    row: &'static List,
    language: Language,
) -> Vec<CodeRuntime> {
    let Some(allowed) = reader.list(row, parse_runtime) else {
        return CodeRuntime::ALL.to_vec();
    };
    let default = CodeRuntime::of(language);
    if !allowed.contains(&default) && !reader.was_refused(row) {
        let written: Vec<&str> = allowed.iter().map(|runtime| runtime.as_str()).collect();
        let reason = format!("it lacks {default}, the runtime of code without a language");
        reader.refuse(row, format!("{written:?}"), reason, row.shape);
    }
    allowed
}

fn parse_runtime(word: &str) -> Result<CodeRuntime, Reason> {
    let mut known = CodeRuntime::ALL.into_iter();
    known
        .find(|runtime| runtime.as_str() == word)
        .ok_or_else(|| "there is no such runtime".to_owned())
}
