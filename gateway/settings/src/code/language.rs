//! The languages that code may be written in, and those in which stubs describe tools.

use std::fmt;

use crate::rows::words;

/// What a run is written in. `javascript` is another name for TypeScript: both share one session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Language {
    /// Run by the system's `python3`.
    Python,
    /// TypeScript or JavaScript, run by `deno`.
    TypeScript,
}

impl Language {
    /// Every language.
    pub const ALL: [Self; 2] = [Self::Python, Self::TypeScript];

    /// Reads `python`, `typescript` or `javascript`; none for anything else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "python" => Some(Self::Python),
            "typescript" | "javascript" => Some(Self::TypeScript),
            _ => None,
        }
    }

    /// The word of keys, ids and labels.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Python => "python",
            Self::TypeScript => "typescript",
        }
    }
}

impl fmt::Display for Language {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

words! {
    /// What stubs are written in.
    pub enum StubFormat {
        /// functions for Python, which code imports
        Python = "python",
        /// functions for TypeScript, which code imports
        TypeScript = "typescript",
        /// descriptions to be read, without functions
        Json = "json",
    }
}

impl StubFormat {
    /// What a runtime of this language imports.
    #[must_use]
    pub const fn of(language: Language) -> Self {
        match language {
            Language::Python => Self::Python,
            Language::TypeScript => Self::TypeScript,
        }
    }
}
