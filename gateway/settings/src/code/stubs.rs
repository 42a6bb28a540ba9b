//! What a server's stubs are written in.

use crate::Language;
use crate::reader::Reader;
use crate::rows::{settings, words};

settings! {
    /// The row about stubs.
    pub(super) const STUB_ROWS {
        /// What `/tools` describes the tools of other servers in.
        STUB_LANGUAGE = Choice("servers.stub_language", crate::setting::words::<StubFormat>)
            .unset("the language of the server's runtime"),
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

    /// What is written, else what a runtime of this language imports.
    pub(super) fn read(reader: &mut Reader<'_>, runtime: Language) -> Self {
        let written = reader.if_written(&STUB_LANGUAGE);
        written.unwrap_or_else(|| Self::of(runtime))
    }
}
