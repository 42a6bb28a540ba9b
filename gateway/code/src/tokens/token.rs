//! The text of a token: `TKN_`, a category, `_`, and the number of the value in its session's map, of six digits or more.
//!
//! Invariant: a text is read as tokens in one way only. A category has no digit after a `_`, and all the digits that follow
//! belong to the number: `TKN_EMAIL_0000012` is not the token `TKN_EMAIL_000001` and a 2. Nothing has to separate a
//! token from the text around it.

use std::fmt::Write as _;
use std::ops::Range;

/// The prefix of every token.
const START: &str = "TKN_";
/// Fewest digits of a number.
const DIGITS_MIN: usize = 6;
/// Longest category that is read, in bytes; the settings allow less.
const CATEGORY_BYTES_MAX: usize = 64;

/// A token in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TokenMatch<'a> {
    /// Where it is.
    pub(super) range: Range<usize>,
    /// Its category.
    pub(super) category: &'a str,
    /// Its number, from 1.
    pub(super) number: u32,
}

/// The token of a value.
pub(super) fn text(category: &str, number: u32) -> String {
    let mut text = String::with_capacity(START.len() + category.len() + 1 + DIGITS_MIN);
    // Writing to a string cannot fail.
    let _ = write!(text, "{START}{category}_{number:0DIGITS_MIN$}");
    text
}

/// The token of a value for which the map has no room. It is never replaced by the value again.
pub(super) fn overflow_text(category: &str) -> String {
    format!("{START}{category}_OVERFLOW")
}

/// Every token of a text, from left to right.
pub(super) fn find(text: &str) -> impl Iterator<Item = TokenMatch<'_>> {
    let mut starts = memchr::memmem::find_iter(text.as_bytes(), START);
    let mut end = 0;
    std::iter::from_fn(move || {
        loop {
            let start = starts.next()?;
            if start < end {
                continue;
            }
            if let Some(found) = read(text, start) {
                end = found.range.end;
                return Some(found);
            }
        }
    })
}

/// The token that begins at `start`, if there is one.
fn read(text: &str, start: usize) -> Option<TokenMatch<'_>> {
    let body = text.get(start + START.len()..)?;
    let bytes = body.as_bytes();
    let known = |byte: &u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || *byte == b'_';
    let split = bytes
        .iter()
        .zip(bytes.iter().skip(1))
        .take(CATEGORY_BYTES_MAX + 1)
        .take_while(|(byte, _)| known(byte))
        .position(|(byte, next)| *byte == b'_' && next.is_ascii_digit())?;
    let category = body.get(..split).filter(|category| !category.is_empty())?;
    let rest = body.get(split + 1..)?;
    let length = rest.bytes().take_while(u8::is_ascii_digit).count();
    let digits = rest.get(..length)?;
    // Only what is written as this gateway writes it is a token: no zero too many.
    let is_canonical = length == DIGITS_MIN || (length > DIGITS_MIN && !digits.starts_with('0'));
    let number = digits.parse().ok().filter(|number| *number > 0)?;
    is_canonical.then(|| TokenMatch {
        range: start..start + START.len() + split + 1 + length,
        category,
        number,
    })
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[(&str, u32)]) {
        let found: Vec<_> = find(text).collect();
        let read: Vec<_> = found.iter().map(|one| (one.category, one.number)).collect();
        assert_eq!(read, expected, "{text}");
        for one in found {
            assert_eq!(text[one.range], super::text(one.category, one.number));
        }
    }

    #[test]
    fn a_text_is_read_in_one_way() {
        check("TKN_EMAIL_000001", &[("EMAIL", 1)]);
        check("<TKN_CREDIT_CARD_000012>", &[("CREDIT_CARD", 12)]);
        check("aTKN_EMAIL_000001b", &[("EMAIL", 1)]);
        check(
            "TKN_EMAIL_000001TKN_A1_B_000002",
            &[("EMAIL", 1), ("A1_B", 2)],
        );
        check("TKN_EMAIL_1000000", &[("EMAIL", 1_000_000)]);
        check("TKN_EMAIL_0000012", &[]);
        check("TKN_EMAIL_00001", &[]);
        check("TKN_EMAIL_000000", &[]);
        check("TKN_EMAIL_99999999999", &[]);
        check("TKN__000001", &[]);
        check("TKN_email_000001", &[]);
        check("TKN_EMAIL_OVERFLOW", &[]);
        check("TKN_TKN_EMAIL_000001", &[("TKN_EMAIL", 1)]);
        check("TKN_", &[]);
        check("äTKN_ÄTKN_A_000003ä", &[("A", 3)]);
    }
}
