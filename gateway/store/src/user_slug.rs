//! A principal in the keys and paths of code and agent sessions.
//!
//! Invariant: two principals never share a slug, whatever their e-mail addresses look like.

use std::fmt;

use mooring_secrets::digest;
use mooring_session::names::Principal;

/// Digits of the principal's SHA-256 that distinguish slugs with the same readable part.
const SLUG_DIGITS: usize = 16;
/// Longest readable part of a slug, in bytes.
const READABLE_BYTES_MAX: usize = 40;
/// The readable part if a principal has no letter or digit.
const READABLE_EMPTY: &str = "user";

/// A principal in keys and paths: a readable part, and the first 16 hexadecimal digits of its SHA-256, so that
/// `a.b@example.com` and `a-b@example.com` differ. It still reveals an e-mail address, so it is never logged or used as
/// a label.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UserSlug(String);

impl UserSlug {
    /// The slug of a principal: at most 57 bytes of `[a-z0-9-]`.
    #[must_use]
    pub fn of(principal: &Principal) -> Self {
        let hash = digest::hex(principal.as_str().as_bytes());
        let distinct = hash.get(..SLUG_DIGITS).unwrap_or(&hash);
        Self(format!("{}-{distinct}", readable(principal.as_str())))
    }

    /// Whether a name has the form of a slug.
    #[must_use]
    pub fn has_form(name: &str) -> bool {
        let lower = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        name.rsplit_once('-').is_some_and(|(readable, hash)| {
            !readable.is_empty() && hash.len() == SLUG_DIGITS && hash.bytes().all(lower)
        })
    }

    /// The slug as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for UserSlug {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "UserSlug({})", digest::short(&self.0))
    }
}

/// Lower-case ASCII letters and digits; one hyphen for every run of anything else, none at either end.
fn readable(text: &str) -> String {
    let mut slug = String::with_capacity(READABLE_BYTES_MAX);
    for letter in text.chars().map(|letter| letter.to_ascii_lowercase()) {
        if slug.len() >= READABLE_BYTES_MAX {
            break;
        }
        if letter.is_ascii_alphanumeric() {
            slug.push(letter);
        } else if !slug.is_empty() && !slug.ends_with('-') {
            slug.push('-');
        }
    }
    let slug = slug.trim_end_matches('-');
    if slug.is_empty() {
        READABLE_EMPTY.to_owned()
    } else {
        slug.to_owned()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    #[test]
    fn a_slug_is_readable_bounded_and_no_path() {
        for (text, readable) in [
            ("Alice", "alice"),
            ("../../etc/passwd", "etc-passwd"),
            ("@@@", "user"),
            ("\u{7528}\u{6237}", "user"),
            (
                "a-very-long-name.with.many.parts@department.example.com",
                "a-very-long-name-with-many-parts-departm",
            ),
            (&"-x".repeat(30), "x-x-x-x-x-x-x-x-x-x-x-x-x-x-x-x-x-x-x-x"),
        ] {
            let slug = UserSlug::of(&Principal::parse(text.as_bytes()).unwrap());
            let (head, hash) = slug.as_str().rsplit_once('-').unwrap();
            assert_eq!((head, hash.len()), (readable, 16), "{text}");
            assert!(UserSlug::has_form(slug.as_str()));
        }
    }
}
