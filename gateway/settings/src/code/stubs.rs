//! What a server's stubs are written in.

use crate::Language;
use crate::reader::Reader;
use crate::setting::{Choice, ChoiceOption, SettingInfo};

pub(super) const STUB_LANGUAGE: Choice<StubFormat> = Choice {
    about: SettingInfo::new(
        "servers.stub_language",
        "What `/tools` describes the tools of other servers in.",
    )
    .unset("the language of the server's runtime"),
    default: ChoiceOption {
        name: "python",
        value: StubFormat::Python,
        meaning: "functions for Python, which code imports",
    },
    others: &[
        ChoiceOption {
            name: "typescript",
            value: StubFormat::TypeScript,
            meaning: "functions for TypeScript, which code imports",
        },
        ChoiceOption {
            name: "json",
            value: StubFormat::Json,
            meaning: "descriptions to be read, without functions",
        },
    ],
    later: &[],
};

/// What stubs are written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StubFormat {
    /// Functions for Python.
    Python,
    /// Functions for TypeScript.
    TypeScript,
    /// Descriptions, without functions.
    Json,
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

pub(super) fn parse(reader: &mut Reader<'_>, runtime: Language) -> StubFormat {
    reader.choice_or(&STUB_LANGUAGE, StubFormat::of(runtime))
}
