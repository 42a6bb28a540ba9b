//! Which names a session's files may have.
//!
//! Names reach terminals, logs, JSON and models. A name that is not text, or that contains characters which affect the
//! display (control characters, line separators, marks that change the text direction), is neither written nor
//! committed, and is shown escaped. Writing and committing use the same rule: every committed file can be requested by
//! its path, and vice versa.

use std::fmt::Write as _;

/// Longest name in bytes: the limit of Linux file systems.
const NAME_BYTES_MAX: usize = 255;

/// What is wrong with a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameFault {
    /// Nothing, `.` or `..`.
    #[error("the name is empty, \".\" or \"..\"")]
    Reserved,
    /// Longer than 255 bytes.
    #[error("the name is longer than {NAME_BYTES_MAX} bytes")]
    TooLong,
    /// Not UTF-8.
    #[error("the name is not UTF-8")]
    NotUtf8,
    /// A control character, a line separator or a mark that turns the direction of writing.
    #[error("the name holds a control character or a direction mark")]
    Control,
}

/// The name as text, where it is one that a session's file may have.
///
/// # Errors
///
/// What is wrong with it.
pub fn checked(name: &[u8]) -> Result<&str, NameFault> {
    if matches!(name, b"" | b"." | b"..") {
        return Err(NameFault::Reserved);
    }
    if name.len() > NAME_BYTES_MAX {
        return Err(NameFault::TooLong);
    }
    let text = std::str::from_utf8(name).map_err(|_| NameFault::NotUtf8)?;
    if text.chars().any(is_acting) {
        return Err(NameFault::Control);
    }
    Ok(text)
}

/// A name or path for display: bytes that are not UTF-8 as `\xNN`, characters that affect the display as `\u{N}`, a
/// backslash doubled, so that no two names look alike.
#[must_use]
pub fn escaped(name: &[u8]) -> String {
    let mut shown = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for character in chunk.valid().chars() {
            if character == '\\' {
                shown.push_str("\\\\");
            } else if is_acting(character) {
                shown.extend(character.escape_unicode());
            } else {
                shown.push(character);
            }
        }
        for byte in chunk.invalid() {
            // Writing to a string cannot fail.
            let _ = write!(shown, "\\x{byte:02x}");
        }
    }
    shown
}

/// Whether the character affects the display instead of being shown.
fn is_acting(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{061C}' | '\u{200E}' | '\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2066}'..='\u{2069}' | '\u{FEFF}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_text_that_does_not_act_on_its_reader() {
        for good in [
            "a",
            ".hidden",
            "übung.txt",
            "with space",
            "日本語",
            "a\\b",
            "-rf",
        ] {
            assert_eq!(checked(good.as_bytes()), Ok(good));
        }
        for (bad, fault) in [
            (&b""[..], NameFault::Reserved),
            (b".", NameFault::Reserved),
            (b"..", NameFault::Reserved),
            (b"a\nb", NameFault::Control),
            (b"\x1b[2J", NameFault::Control),
            (b"nul\0", NameFault::Control),
            ("a\u{202E}txt.exe".as_bytes(), NameFault::Control),
            (b"\xff\xfe", NameFault::NotUtf8),
            (&[b'x'; 256], NameFault::TooLong),
        ] {
            assert_eq!(checked(bad), Err(fault), "{bad:?}");
        }
        assert!(checked(&[b'x'; 255]).is_ok());
    }

    #[test]
    fn what_is_shown_is_harmless_and_tells_names_apart() {
        assert_eq!(escaped(b"plain"), "plain");
        assert_eq!(escaped(b"a\nb"), "a\\u{a}b");
        assert_eq!(escaped(b"a\xffb"), "a\\xffb");
        assert_eq!(escaped(b"a\\xffb"), "a\\\\xffb");
        assert_eq!(escaped("\u{202E}x".as_bytes()), "\\u{202e}x");
    }
}
