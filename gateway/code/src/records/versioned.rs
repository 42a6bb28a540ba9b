//! What all stored values of records share: their version, and the cutting of texts.

use serde::Deserialize as _;
use serde::de::Error as _;

/// The newest version this gateway reads; it is the one it writes.
pub(super) const VERSION: u32 = 1;

/// A text, or its first characters and a mark.
pub(super) fn cut(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        None => text.to_owned(),
        Some((end, _)) => format!(
            "{}\n[truncated: the first {chars_max} of {} characters]",
            text.get(..end).unwrap_or_default(),
            text.chars().count()
        ),
    }
}

/// A text, or its first characters.
pub(super) fn head(text: &str, chars_max: usize) -> String {
    text.chars().take(chars_max).collect()
}

/// Reads a stored value; none if it is of a later version or incomplete.
pub(super) fn read<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    serde_json::from_slice(bytes).ok()
}

/// The version of a stored value, which everything stored has: a later one is refused.
pub(super) fn version<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let version = u32::deserialize(deserializer)?;
    if version > VERSION {
        return Err(D::Error::custom("a later version wrote it"));
    }
    Ok(version)
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[test]
    fn texts_are_cut_between_characters_and_say_so() {
        assert_eq!(cut("äöü", 3), "äöü");
        assert_eq!(
            cut("äöü", 2),
            "äö\n[truncated: the first 2 of 3 characters]"
        );
        assert_eq!(cut("", 0), "");
    }

    #[test]
    fn what_a_later_version_wrote_is_not_read() {
        #[derive(Debug, PartialEq, Deserialize)]
        struct VersionOnly {
            #[serde(deserialize_with = "version")]
            version: u32,
        }
        assert_eq!(
            read(br#"{"version": 1}"#),
            Some(VersionOnly { version: VERSION })
        );
        for bytes in [br#"{"version": 2}"#.as_slice(), b"{}", b"{\"version\": 1"] {
            assert_eq!(read::<VersionOnly>(bytes), None);
        }
    }
}
