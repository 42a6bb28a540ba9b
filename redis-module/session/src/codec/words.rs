//! The words of a packed value.
//!
//! Invariant: a value has one meaning: its words are visible ASCII with one space between two of them, and none is
//! empty.

use crate::names::parse_integer;

/// The words of a packed value: visible ASCII, one space between two of them. An empty word reads as `None`.
///
/// Every use reads two such values of over 200 bytes together, so each byte is read as few times as possible.
pub(super) struct Words<'a> {
    rest: Option<&'a [u8]>,
}

impl<'a> Words<'a> {
    pub(super) fn of(value: &'a [u8]) -> Option<Self> {
        let is_printable = |byte: &u8| (b' '..=b'~').contains(byte);
        // Without an early exit, the compiler checks many bytes at once.
        let is_valid = (value.iter()).fold(true, |valid, byte| valid & is_printable(byte));
        is_valid.then_some(Self { rest: Some(value) })
    }

    pub(super) fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest?;
        let length = rest.iter().position(|byte| *byte == b' ');
        self.take(length.unwrap_or(rest.len()))
    }

    pub(super) fn number(&mut self) -> Option<u64> {
        /// The most decimal digits that never overflow.
        const DIGITS_SAFE: usize = 19;
        let rest = self.rest?;
        let (mut value, mut length) = (0_u64, 0);
        for byte in rest.iter().take(DIGITS_SAFE) {
            if !byte.is_ascii_digit() {
                break;
            }
            value = value * 10 + u64::from(byte & 0x0f);
            length += 1;
        }
        match (rest.first()?, rest.get(length)) {
            (b'1'..=b'9', None | Some(b' ')) => self.take(length).map(|_| value),
            _ => parse_integer("number", self.next()?, 0, u64::MAX).ok(),
        }
    }

    /// Takes the word of this length, with the space after it.
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let rest = self.rest?;
        let word = rest.get(..length).filter(|word| !word.is_empty())?;
        self.rest = rest.get(length.saturating_add(1)..);
        Some(word)
    }

    /// The remaining words, as text.
    pub(super) fn names(self) -> Option<impl Iterator<Item = &'a str>> {
        let names = std::str::from_utf8(self.rest?).ok()?;
        Some(names.split(' '))
    }

    /// Whether every word was taken.
    pub(super) const fn is_at_end(&self) -> bool {
        self.rest.is_none()
    }
}

pub(super) fn push_numbers(value: &mut String, numbers: impl IntoIterator<Item = u64>) {
    for number in numbers {
        value.push(' ');
        value.push_str(itoa::Buffer::new().format(number));
    }
}

/// Reads a value of a single word.
pub(super) fn read_number(word: &[u8]) -> Option<u64> {
    parse_integer("number", word, 0, u64::MAX).ok()
}
