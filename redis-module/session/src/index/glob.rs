//! Key patterns with the same meaning as in Redis: `*`, `?`, `[a-z]`, `[^x]`, and `\` before a literal character.
//!
//! Invariant: a match takes at most as many steps as the product of the lengths of pattern and text, because only the
//! last star is ever retried. It returns the step count, so that a caller that matches many keys can stop.

use crate::limits::PATTERN_BYTES_MAX;
use crate::names::{NameError, Problem};

/// A parsed pattern.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Glob {
    parts: Vec<Part>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Part {
    Byte(u8),
    Any,
    Star,
    Class(Class),
}

/// A set of bytes: one bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Class([u64; 4]);

impl Class {
    fn insert(&mut self, byte: u8) {
        if let Some(word) = self.0.get_mut(usize::from(byte >> 6)) {
            *word |= 1 << (byte & 63);
        }
    }

    fn contains(&self, byte: u8) -> bool {
        let word = self.0.get(usize::from(byte >> 6));
        word.is_some_and(|word| word & (1 << (byte & 63)) != 0)
    }

    fn negated(self) -> Self {
        Self(self.0.map(|word| !word))
    }

    /// Parses a class after its `[`, and returns the rest after the class. As in Redis, an unclosed class ends with the
    /// pattern, and a reversed range is swapped.
    fn parse(mut pattern: &[u8]) -> (Self, &[u8]) {
        let mut class = Self([0; 4]);
        let is_negated = pattern.first() == Some(&b'^');
        if is_negated {
            pattern = pattern.get(1..).unwrap_or_default();
        }
        let rest = loop {
            match pattern {
                [] => break pattern,
                [b']', rest @ ..] => break rest,
                [b'\\', byte, rest @ ..] => {
                    class.insert(*byte);
                    pattern = rest;
                }
                [from, b'-', to, rest @ ..] => {
                    for byte in *from.min(to)..=*from.max(to) {
                        class.insert(byte);
                    }
                    pattern = rest;
                }
                [byte, rest @ ..] => {
                    class.insert(*byte);
                    pattern = rest;
                }
            }
        };
        (if is_negated { class.negated() } else { class }, rest)
    }
}

impl Part {
    fn matches(&self, byte: u8) -> bool {
        match self {
            Self::Byte(wanted) => *wanted == byte,
            Self::Any => true,
            Self::Class(class) => class.contains(byte),
            Self::Star => false,
        }
    }
}

impl Glob {
    /// What every match begins with, as far as the pattern says it literally.
    pub(super) fn literal_start(&self) -> Vec<u8> {
        let literal = self.parts.iter().map_while(|part| match part {
            Part::Byte(byte) => Some(*byte),
            Part::Any | Part::Star | Part::Class(_) => None,
        });
        literal.collect()
    }

    /// Parses a pattern.
    ///
    /// # Errors
    /// A pattern over 256 bytes.
    pub fn parse(pattern: &[u8]) -> Result<Self, NameError> {
        if pattern.len() > PATTERN_BYTES_MAX {
            return Err(NameError {
                what: "pattern",
                problem: Problem::TooLong(PATTERN_BYTES_MAX),
            });
        }
        let mut parts = Vec::new();
        let mut rest = pattern;
        while let [first, after @ ..] = rest {
            rest = after;
            let part = match (first, after) {
                (b'*', _) => Part::Star,
                (b'?', _) => Part::Any,
                (b'[', _) => {
                    let (class, after) = Class::parse(after);
                    rest = after;
                    Part::Class(class)
                }
                (b'\\', [escaped, after @ ..]) => {
                    rest = after;
                    Part::Byte(*escaped)
                }
                (byte, _) => Part::Byte(*byte),
            };
            if part != Part::Star || parts.last() != Some(&Part::Star) {
                parts.push(part);
            }
        }
        Ok(Self { parts })
    }

    /// Whether the whole text matches.
    #[must_use]
    pub fn matches(&self, text: &[u8]) -> bool {
        self.matches_counting(text, &mut 0)
    }

    /// The same. Adds the steps that it took.
    pub(super) fn matches_counting(&self, text: &[u8], steps: &mut usize) -> bool {
        let (mut part, mut place) = (0, 0);
        // Where to continue if the part after the last star does not match: one byte further than at the last try.
        let mut again: Option<(usize, usize)> = None;
        loop {
            *steps = steps.saturating_add(1);
            match (self.parts.get(part), text.get(place)) {
                (None, None) => return true,
                (Some(Part::Star), _) => {
                    part += 1;
                    again = Some((part, place));
                    continue;
                }
                (Some(wanted), Some(byte)) if wanted.matches(*byte) => {
                    part += 1;
                    place += 1;
                    continue;
                }
                // The rest of the pattern needs more bytes than are left, wherever it starts.
                (Some(_), None) => return false,
                (_, Some(_)) => {}
            }
            let Some((after_star, tried)) = again else {
                return false;
            };
            (part, place) = (after_star, tried + 1);
            again = Some((part, place));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    #[test]
    fn patterns_mean_what_they_mean_in_redis() {
        for (pattern, text, expected) in [
            (&b""[..], &b""[..], true),
            (b"", b"a", false),
            (b"*", b"", true),
            (b"*", b"anything", true),
            (b"a*", b"abc", true),
            (b"*c", b"abc", true),
            (b"a*c", b"ac", true),
            (b"a*b*c", b"axxbxxbxc", true),
            (b"a*b*c", b"axxbxxbx", false),
            (b"a**c", b"abc", true),
            (b"a?c", b"abc", true),
            (b"a?c", b"ac", false),
            (b"a[bx]c", b"abc", true),
            (b"a[^bx]c", b"abc", false),
            (b"a[^bx]c", b"adc", true),
            (b"[a-c]", b"b", true),
            (b"[c-a]", b"b", true),
            (b"[a-c]", b"d", false),
            (b"[a\\]]", b"]", true),
            (b"[\\-x]", b"-", true),
            (b"[]", b"]", false),
            (b"[ab", b"a", true),
            (b"[ab", b"c", false),
            (b"[a-", b"-", true),
            (b"\\*", b"*", true),
            (b"\\*", b"a", false),
            (b"a\\", b"a\\", true),
            (b"\xff\x00?", b"\xff\x00\xfe", true),
        ] {
            let matches = Glob::parse(pattern).unwrap().matches(text);
            assert_eq!(matches, expected, "{pattern:?} on {text:?}");
        }
        assert!(Glob::parse(&[b'*'; 256]).is_ok());
        assert!(Glob::parse(&[b'*'; 257]).is_err());
    }

    #[test]
    fn no_pattern_is_exponential() {
        let pattern = "*a".repeat(128);
        let text = "a".repeat(1023) + "b";
        let mut steps = 0;
        let glob = Glob::parse(pattern.as_bytes()).unwrap();
        assert!(!glob.matches_counting(text.as_bytes(), &mut steps));
        assert!(steps <= 257 * 1025, "{steps}");
    }
}
