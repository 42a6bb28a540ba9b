//! Parses the words of a command: positional arguments first, then options in any order.
//!
//! Pure: words are bytes of any owner. Invariants: every word is read exactly once; an option occurs once unless its
//! grammar allows more; an error shows at most the invalid word, never a value.

use std::collections::BTreeMap;
use std::ffi::CStr;

use mooring_session::names::{
    InstanceName, LabelName, LabelValue, NameError, Problem, parse_integer,
};
use mooring_session::time::Millis;
use mooring_session::{Refusal, limits};

use crate::command_spec::ArgumentSpec;
use crate::failure::Failure;

/// The highest epoch or generation: the highest integer of a Redis reply.
const NUMBER_MAX: u64 = i64::MAX.unsigned_abs();

/// The words of a command, its name first.
pub(crate) trait Words<'a> {
    /// The word at `index`.
    fn word(&self, index: usize) -> Option<&'a [u8]>;

    /// Hides the word at `index` in SLOWLOG and MONITOR, if there is a server.
    fn redact(&self, _index: usize) {}

    /// The same for all words but the command's name.
    fn redact_all(&self) {}
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

    fn redact(&self, index: usize) {
        crate::ffi::Arguments::redact(*self, index);
    }

    fn redact_all(&self) {
        crate::ffi::Arguments::redact_all(*self);
    }
}

/// A parser with its position.
pub(crate) struct Parser<W> {
    words: W,
    next: usize,
}

/// The options read so far: one bit each, by their index in the list.
#[derive(Clone, Copy, Default)]
pub(crate) struct SeenOptions(u32);

impl<'a, W: Words<'a>> Parser<W> {
    /// Starts at the first word after the command's name.
    pub(crate) const fn new(words: W) -> Self {
        Self { words, next: 1 }
    }

    fn take(&mut self) -> Option<&'a [u8]> {
        let word = self.words.word(self.next)?;
        self.next += 1;
        Some(word)
    }

    /// The previous word, for an error about what should follow it.
    fn last(&self) -> &'a [u8] {
        self.words.word(self.next.saturating_sub(1)).unwrap_or(b"")
    }

    /// The next word, which is required.
    pub(crate) fn value(&mut self) -> Result<&'a [u8], Failure> {
        self.take().ok_or_else(|| Failure::near(self.last()))
    }

    /// The next word, parsed by `parse`.
    pub(crate) fn name<T>(
        &mut self,
        parse: impl FnOnce(&'a [u8]) -> Result<T, NameError>,
    ) -> Result<T, Failure> {
        Ok(parse(self.value()?)?)
    }

    /// The same for a word that SLOWLOG and MONITOR must not show.
    pub(crate) fn secret<T>(
        &mut self,
        parse: impl FnOnce(&'a [u8]) -> Result<T, NameError>,
    ) -> Result<T, Failure> {
        self.words.redact(self.next);
        self.name(parse)
    }

    /// Hides all words of a command that could not be parsed, if one of its arguments is a secret: it is unknown which
    /// word that is.
    pub(crate) fn redact_all(&self, arguments: &'static [ArgumentSpec]) {
        if arguments.iter().any(|argument| argument.is_secret) {
            self.words.redact_all();
        }
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

    /// The token of the next option, in either case; `None` at the end of the words.
    ///
    /// # Errors
    /// A word that is no token in the list, or a repeated one that may occur once only.
    pub(crate) fn option(
        &mut self,
        arguments: &'static [ArgumentSpec],
        seen: &mut SeenOptions,
    ) -> Result<Option<&'static CStr>, Failure> {
        let Some(word) = self.take() else {
            return Ok(None);
        };
        for (place, argument) in arguments.iter().enumerate() {
            let Some(token) = argument.token_like(word) else {
                continue;
            };
            let bit = 1_u32.checked_shl(u32::try_from(place).unwrap_or(u32::MAX));
            let bit = bit.unwrap_or(0);
            if seen.0 & bit != 0 && !argument.multiple {
                break;
            }
            seen.0 |= bit;
            return Ok(Some(token));
        }
        Err(Failure::near(word))
    }

    /// Whether no word follows.
    pub(crate) fn is_at_end(&self) -> bool {
        self.words.word(self.next).is_none()
    }
}

/// Reads an integer within its range.
pub(crate) fn integer(
    what: &'static str,
    least: u64,
    most: u64,
) -> impl FnOnce(&[u8]) -> Result<u64, NameError> {
    move |word| parse_integer(what, word, least, most)
}

/// Reads a duration in milliseconds within its range.
pub(crate) fn duration(
    what: &'static str,
    least: Millis,
    most: Millis,
) -> impl FnOnce(&[u8]) -> Result<Millis, NameError> {
    move |word| parse_integer(what, word, least.get(), most.get()).map(Millis::new)
}

/// Reads an epoch.
pub(crate) fn epoch(word: &[u8]) -> Result<u64, NameError> {
    parse_integer("epoch", word, 0, NUMBER_MAX)
}

/// Reads a generation.
pub(crate) fn generation(word: &[u8]) -> Result<u64, NameError> {
    parse_integer("gen", word, 0, NUMBER_MAX)
}

/// Reads the time to live of a session.
pub(crate) fn ttl(word: &[u8]) -> Result<Millis, NameError> {
    duration("TTL", limits::TTL_MIN, limits::TTL_MAX)(word)
}

/// Reads the lease of a claim.
pub(crate) fn lease(word: &[u8]) -> Result<Millis, NameError> {
    duration("LEASE", limits::LEASE_MIN, limits::LEASE_MAX)(word)
}

/// The parts of one label, for COMMAND DOCS.
pub(crate) const LABEL: &[ArgumentSpec] =
    &[ArgumentSpec::text(c"name"), ArgumentSpec::text(c"value")];

/// Reads the name and the value of one more label.
pub(crate) fn label<'a>(
    words: &mut Parser<impl Words<'a>>,
    labels: &mut BTreeMap<LabelName, LabelValue>,
) -> Result<(), Failure> {
    let word = words.value()?;
    let name = LabelName::parse(word)?;
    let value = words.name(LabelValue::parse)?;
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

/// The parts of the list of instances, for COMMAND DOCS.
pub(crate) const INSTANCES: &[ArgumentSpec] = &[
    ArgumentSpec::integer(c"n"),
    ArgumentSpec::text(c"instance").multiple(),
];

/// Reads a count, and that many instances.
pub(crate) fn instances<'a>(
    words: &mut Parser<impl Words<'a>>,
) -> Result<Vec<InstanceName>, Failure> {
    let count = words.name(integer("INSTANCES", 1, limits::INSTANCES_MAX as u64))?;
    (0..count)
        .map(|_| words.name(InstanceName::parse))
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::indexing_slicing,
        reason = "tests fail by panicking"
    )]
    use super::*;

    type Parsed = (Option<Millis>, Vec<Vec<u8>>, bool, Option<u64>);

    fn gather<'a>(
        words: &mut Parser<impl Words<'a>>,
        labels: &mut Vec<Vec<u8>>,
    ) -> Result<(), Failure> {
        labels.push(words.value()?.to_vec());
        Ok(())
    }

    crate::grammar::grammar! {
        parse<'a>() -> Parsed {
            first: optional(c"TTL", integer(c"ms", ttl)),
            labels: repeated(c"LABEL", block(c"label", LABEL, gather)),
            is_owned: word(c"OWNED", c"owned", false => true),
            number: either(
                c"number",
                c"EPOCH" => integer(c"epoch", epoch),
                c"GEN" => integer(c"gen", generation)
            ),
        } => Ok((first, labels, is_owned, number))
    }

    #[test]
    fn options_come_in_any_order_and_case() {
        let words: &[&[u8]] = &[
            b"c", b"owned", b"Label", b"a", b"gen", b"7", b"ttl", b"1000", b"LABEL", b"b",
        ];
        let labels = vec![b"a".to_vec(), b"b".to_vec()];
        let expected = (Some(Millis::new(1_000)), labels, true, Some(7));
        assert_eq!(parse(words).unwrap(), expected);
    }

    #[test]
    fn errors_show_the_word_that_is_wrong() {
        let long = [b'x'; 100];
        let cases: &[(&[&[u8]], &str)] = &[
            (&[b"c", b"nope"], "ERR syntax error near 'nope'"),
            (&[b"c", b"OWNED", b"owned"], "ERR syntax error near 'owned'"),
            (
                &[b"c", b"EPOCH", b"1", b"gen", b"1"],
                "ERR syntax error near 'gen'",
            ),
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
            assert_eq!(parse(*words).unwrap_err().to_string(), *message);
        }
        let shown = parse(&[b"c", &long[..]][..]).unwrap_err().to_string();
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
        let count = |words: &[&[u8]]| instances(&mut Parser::new(words)).map(|names| names.len());
        assert_eq!(count(&[b"c", b"2", b"a", b"b"]).unwrap(), 2);
        assert!(count(&[b"c", b"3", b"a", b"b"]).is_err());
        assert!(count(&[b"c", b"0"]).is_err());
        assert!(count(&[b"c", b"99999999999"]).is_err());
        assert!(count(&[b"c", b"1025"]).is_err());
    }
}
