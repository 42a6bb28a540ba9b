//! The name of a skill: one that both languages can import.

use crate::stubs::is_python_keyword;
use mooring_settings::Language;

/// Longest name, in bytes: with its extension it is the name of a file, which has at most 255.
pub(crate) const NAME_BYTES_MAX: usize = 251;

/// Why a skill cannot be called so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// It is no identifier.
    #[error(
        "the name of a skill is an identifier: ASCII letters, digits and underscores, beginning with a letter, at most {NAME_BYTES_MAX} of them"
    )]
    Identifier,
    /// It is a word of the language.
    #[error("a word of the language cannot be the name of a skill")]
    Keyword,
}

/// Whether a skill of this language may have the name. A leading underscore is the gateway's own.
pub(super) fn check(name: &str, language: Language) -> Result<(), NameError> {
    let is_identifier = name.starts_with(|first: char| first.is_ascii_alphabetic())
        && name.len() <= NAME_BYTES_MAX
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if !is_identifier {
        return Err(NameError::Identifier);
    }
    if language == Language::Python && is_python_keyword(name) {
        return Err(NameError::Keyword);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let long = "x".repeat(NAME_BYTES_MAX);
        for name in ["a", "csv_report2", "X", "classy", &long] {
            assert_eq!(check(name, Language::Python), Ok(()), "{name}");
        }
        let too_long = "x".repeat(NAME_BYTES_MAX + 1);
        for name in [
            "", "_a", "2a", "a-b", "a.b", "../a", "ä", "a b", "a\n", &too_long,
        ] {
            assert_eq!(
                check(name, Language::Python),
                Err(NameError::Identifier),
                "{name}"
            );
        }
        assert_eq!(check("class", Language::Python), Err(NameError::Keyword));
        assert_eq!(check("lambda", Language::TypeScript), Ok(()));
    }
}
