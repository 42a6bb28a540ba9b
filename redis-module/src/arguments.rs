//! Reads the words of a command: positional ones first, then options in any order.
//!
//! Pure: it sees words as bytes, whoever holds them. Invariants: no word is looked at twice and none is skipped; an
//! option comes once unless its grammar says otherwise; an error shows at most the word that is wrong, never a value.

use std::collections::BTreeMap;

use mooring_session::names::{
    InstanceName, LabelName, LabelValue, NameError, Problem, parse_integer,
};
use mooring_session::time::Millis;
use mooring_session::{Refusal, limits};

use crate::failure::Failure;

/// The greatest number that only grows: the greatest integer that Redis can answer with.
const NUMBER_MAX: u64 = i64::MAX.unsigned_abs();

/// The words of a command, its name first.
pub(crate) trait Words<'a> {
    /// The word at `index`.
    fn word(&self, index: usize) -> Option<&'a [u8]>;
}

impl<'a> Words<'a> for &'a [&'a [u8]] {
    fn word(&self, index: usize) -> Option<&'a [u8]> {
        self.get(index).copied()
    }
}

impl<'a> Words<'a> for crate::ffi::Arguments<'a> {
    fn word(&self, index: usize) -> Option<&'a [u8]> {
        self.get(index).map(crate::ffi::Text::as_bytes)
    }
}

/// A reader that stands before one word.
pub(crate) struct Parser<W> {
    words: W,
    next: usize,
}

/// One option of a command: the word it begins with, and what it stands for.
pub(crate) struct OptionWord<T> {
    /// The word, in upper case.
    pub(crate) word: &'static str,
    /// What it stands for.
    pub(crate) meaning: T,
    /// Whether it may come again.
    pub(crate) repeats: Repeats,
}

/// Whether an option may come more than once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeats {
    /// It may not.
    Never,
    /// It may.
    Freely,
}

impl<T> OptionWord<T> {
    /// An option that comes at most once.
    pub(crate) const fn once(word: &'static str, meaning: T) -> Self {
        Self {
            word,
            meaning,
            repeats: Repeats::Never,
        }
    }

    /// An option that comes as often as it likes.
    pub(crate) const fn repeated(word: &'static str, meaning: T) -> Self {
        Self {
            word,
            meaning,
            repeats: Repeats::Freely,
        }
    }
}

/// The options that were read so far: one bit each, by their index in the table.
#[derive(Clone, Copy, Default)]
pub(crate) struct SeenOptions(u32);

impl<'a, W: Words<'a>> Parser<W> {
    /// Stands before the first word after the command's name.
    pub(crate) const fn new(words: W) -> Self {
        Self { words, next: 1 }
    }

    fn take(&mut self) -> Option<&'a [u8]> {
        let word = self.words.word(self.next)?;
        self.next += 1;
        Some(word)
    }

    /// The word before the reader, for an error about what should follow it.
    fn last(&self) -> &'a [u8] {
        self.words.word(self.next.saturating_sub(1)).unwrap_or(b"")
    }

    /// The next word, which has to be there.
    pub(crate) fn value(&mut self) -> Result<&'a [u8], Failure> {
        self.take().ok_or_else(|| Failure::near(self.last()))
    }

    /// The next word, read by `parse`.
    pub(crate) fn name<T>(
        &mut self,
        parse: impl FnOnce(&[u8]) -> Result<T, NameError>,
    ) -> Result<T, Failure> {
        Ok(parse(self.value()?)?)
    }

    /// The next word as a key.
    pub(crate) fn key(&mut self) -> Result<&'a [u8], Failure> {
        let key = self.value()?;
        let fail = |problem| {
            Err(Failure::from(NameError {
                what: "key",
                problem,
            }))
        };
        match key.len() {
            0 => fail(Problem::Empty),
            length if length > limits::KEY_BYTES_MAX => {
                fail(Problem::TooLong(limits::KEY_BYTES_MAX))
            }
            _ => Ok(key),
        }
    }

    /// The next word as an integer within its range.
    pub(crate) fn integer(
        &mut self,
        what: &'static str,
        least: u64,
        most: u64,
    ) -> Result<u64, Failure> {
        self.name(|word| parse_integer(what, word, least, most))
    }

    /// The next word as an epoch.
    pub(crate) fn epoch(&mut self) -> Result<u64, Failure> {
        self.integer("epoch", 0, NUMBER_MAX)
    }

    /// The next word as the number of an incarnation.
    pub(crate) fn generation(&mut self) -> Result<u64, Failure> {
        self.integer("gen", 0, NUMBER_MAX)
    }

    /// The next word as a duration in milliseconds within its range.
    pub(crate) fn duration(
        &mut self,
        what: &'static str,
        least: Millis,
        most: Millis,
    ) -> Result<Millis, Failure> {
        self.integer(what, least.get(), most.get()).map(Millis::new)
    }

    /// The time to live of a session.
    pub(crate) fn ttl(&mut self) -> Result<Millis, Failure> {
        self.duration("TTL", limits::TTL_MIN, limits::TTL_MAX)
    }

    /// The lease of a claim.
    pub(crate) fn lease(&mut self) -> Result<Millis, Failure> {
        self.duration("LEASE", limits::LEASE_MIN, limits::LEASE_MAX)
    }

    /// The name and the value of one more label.
    pub(crate) fn label(
        &mut self,
        labels: &mut BTreeMap<LabelName, LabelValue>,
    ) -> Result<(), Failure> {
        let word = self.value()?;
        let name = LabelName::parse(word)?;
        let value = self.name(LabelValue::parse)?;
        if labels.insert(name, value).is_some() {
            return Err(Failure::near(word));
        }
        if labels.len() > limits::LABELS_MAX {
            return Err(Failure::Refused(Refusal::Limit {
                what: "labels",
                value: limits::LABELS_MAX,
            }));
        }
        Ok(())
    }

    /// A count, and that many instances.
    pub(crate) fn instances(&mut self) -> Result<Vec<InstanceName>, Failure> {
        let count = self.integer("INSTANCES", 1, limits::INSTANCES_MAX as u64)?;
        (0..count).map(|_| self.name(InstanceName::parse)).collect()
    }

    /// The option that comes next, in either case; none at the end of the words.
    ///
    /// # Errors
    /// A word that is not in the table, or came before and does not repeat.
    pub(crate) fn option<T: Copy>(
        &mut self,
        table: &[OptionWord<T>],
        seen: &mut SeenOptions,
    ) -> Result<Option<T>, Failure> {
        let Some(word) = self.take() else {
            return Ok(None);
        };
        for (place, option) in table.iter().enumerate() {
            if !word.eq_ignore_ascii_case(option.word.as_bytes()) {
                continue;
            }
            let bit = 1_u32.checked_shl(u32::try_from(place).unwrap_or(u32::MAX));
            let bit = bit.unwrap_or(0);
            if seen.0 & bit != 0 && option.repeats == Repeats::Never {
                break;
            }
            seen.0 |= bit;
            return Ok(Some(option.meaning));
        }
        Err(Failure::near(word))
    }

    /// Whether no word follows.
    pub(crate) fn is_at_end(&self) -> bool {
        self.words.word(self.next).is_none()
    }

    /// Nothing may follow.
    pub(crate) fn end(&mut self) -> Result<(), Failure> {
        self.take().map_or(Ok(()), |word| Err(Failure::near(word)))
    }
}

/// An option that the grammar demands.
pub(crate) fn required<T>(what: &'static str, value: Option<T>) -> Result<T, Failure> {
    value.ok_or(Failure::Missing(what))
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::indexing_slicing,
        reason = "tests fail by panicking"
    )]
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Meaning {
        Ttl,
        Label,
        Owned,
    }

    const TABLE: [OptionWord<Meaning>; 3] = [
        OptionWord::once("TTL", Meaning::Ttl),
        OptionWord::repeated("LABEL", Meaning::Label),
        OptionWord::once("OWNED", Meaning::Owned),
    ];

    fn parse(words: &[&[u8]]) -> Result<Vec<(Meaning, String)>, Failure> {
        let mut parser = Parser::new(words);
        let mut seen = SeenOptions::default();
        let mut options = Vec::new();
        while let Some(option) = parser.option(&TABLE, &mut seen)? {
            let value = match option {
                Meaning::Ttl => parser.ttl()?.to_string(),
                Meaning::Label => String::from_utf8_lossy(parser.value()?).into_owned(),
                Meaning::Owned => String::new(),
            };
            options.push((option, value));
        }
        Ok(options)
    }

    #[test]
    fn options_come_in_any_order_and_case() {
        let options = parse(&[
            b"c", b"owned", b"Label", b"a", b"ttl", b"1000", b"LABEL", b"b",
        ]);
        let expected = [
            (Meaning::Owned, ""),
            (Meaning::Label, "a"),
            (Meaning::Ttl, "1000"),
            (Meaning::Label, "b"),
        ];
        assert_eq!(
            options.unwrap(),
            expected.map(|(meaning, value)| (meaning, value.to_owned()))
        );
    }

    #[test]
    fn errors_show_the_word_that_is_wrong() {
        let long = [b'x'; 100];
        let cases: &[(&[&[u8]], &str)] = &[
            (&[b"c", b"nope"], "ERR syntax error near 'nope'"),
            (&[b"c", b"OWNED", b"owned"], "ERR syntax error near 'owned'"),
            (&[b"c", b"TTL"], "ERR syntax error near 'TTL'"),
            (
                &[b"c", b"TTL", b"999"],
                "ERR invalid TTL: must be an integer from 1000 to 2592000000",
            ),
            (
                &[b"c", b"%s%n\0\xff'"],
                "ERR syntax error near '%s%n\\x00\\xff\\''",
            ),
            (&[b"c", b""], "ERR syntax error near ''"),
        ];
        for (words, message) in cases {
            assert_eq!(parse(words).unwrap_err().to_string(), *message);
        }
        let shown = parse(&[b"c", &long]).unwrap_err().to_string();
        assert_eq!(shown.len(), "ERR syntax error near ''".len() + 64);
    }

    #[test]
    fn keys_have_a_length_and_nothing_else() {
        let key = |bytes: &[u8]| Parser::new(&[b"c", bytes][..]).key().is_ok();
        assert!(key(b"\0\xff %n"));
        assert!(key(&[b'k'; limits::KEY_BYTES_MAX]));
        assert!(!key(&[b'k'; limits::KEY_BYTES_MAX + 1]));
        assert!(!key(b""));
    }

    #[test]
    fn instances_are_as_many_as_their_count() {
        let count = |words: &[&[u8]]| Parser::new(words).instances().map(|names| names.len());
        assert_eq!(count(&[b"c", b"2", b"a", b"b"]).unwrap(), 2);
        assert!(count(&[b"c", b"3", b"a", b"b"]).is_err());
        assert!(count(&[b"c", b"0"]).is_err());
        assert!(count(&[b"c", b"99999999999"]).is_err());
        assert!(count(&[b"c", b"1025"]).is_err());
    }
}
