//! The parent session of a call: the client's name for the conversation to resume.

use std::fmt;

use mooring_secrets::digest;

/// Longest name in bytes: the limit of the label's value that stores it.
pub const PARENT_BYTES_MAX: usize = 256;
/// Longest name that is part of a key unchanged.
const PLAIN_BYTES_MAX: usize = 128;
/// Prefix of a hashed name in a key. No unchanged name has it.
const HASHED: char = '~';
/// Number of digits of the SHA-256 of a hashed name.
const HASHED_DIGITS: usize = 32;

/// The name of a parent session: 1 to 256 bytes without control characters.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ParentSession(String);

/// Why a text is not a valid parent session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ParentError {
    /// It is empty.
    #[error("parentSessionId is empty")]
    Empty,
    /// It is too long.
    #[error("parentSessionId has {0} bytes, and may have {PARENT_BYTES_MAX}")]
    TooLong(usize),
    /// It could control the terminal of a reader.
    #[error("parentSessionId has a control character")]
    Control,
}

impl ParentSession {
    /// Parses a name.
    ///
    /// # Errors
    /// The name is invalid.
    pub fn parse(text: &str) -> Result<Self, ParentError> {
        if text.is_empty() {
            return Err(ParentError::Empty);
        }
        if text.len() > PARENT_BYTES_MAX {
            return Err(ParentError::TooLong(text.len()));
        }
        if text.chars().any(char::is_control) {
            return Err(ParentError::Control);
        }
        Ok(Self(text.to_owned()))
    }

    /// The name as the client wrote it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The part of a key for this parent: the name itself if a key can contain it, otherwise a digest.
pub(crate) fn key_part(parent: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if (1..=PLAIN_BYTES_MAX).contains(&parent.len()) && parent.bytes().all(is_plain) {
        return parent.to_owned();
    }
    let hash = digest::hex(parent.as_bytes());
    let digits = hash.get(..HASHED_DIGITS).unwrap_or(&hash);
    format!("{HASHED}{digits}")
}

impl fmt::Debug for ParentSession {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "ParentSession({})", digest::short(&self.0))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    fn part(text: &str) -> String {
        key_part(ParentSession::parse(text).unwrap().as_str())
    }

    #[test]
    fn a_plain_name_stands_in_the_key_and_no_two_names_share_one() {
        assert_eq!(part("chat-1.a_B"), "chat-1.a_B");
        let long = "x".repeat(128);
        assert_eq!(part(&long), long);
        let mut parts: Vec<String> = ["a b", "a:b", "a/b", "zo\u{eb}", "~a", &"x".repeat(129)]
            .iter()
            .map(|text| part(text))
            .collect();
        assert!(
            parts
                .iter()
                .all(|part| part.starts_with('~') && part.len() == 33)
        );
        // The hashed form of another name is a valid name too, and is hashed itself.
        let hashed = part("a b");
        parts.push(part(&hashed));
        parts.sort();
        parts.dedup();
        assert_eq!(parts.len(), 7);
    }

    #[test]
    fn what_names_nothing_is_refused() {
        assert_eq!(ParentSession::parse(""), Err(ParentError::Empty));
        let long = "x".repeat(PARENT_BYTES_MAX + 1);
        assert_eq!(ParentSession::parse(&long), Err(ParentError::TooLong(257)));
        assert!(ParentSession::parse(&long[1..]).is_ok());
        for text in ["a\0", "a\nb", "\u{85}", "\u{1b}[2J"] {
            assert_eq!(ParentSession::parse(text), Err(ParentError::Control));
        }
    }
}
