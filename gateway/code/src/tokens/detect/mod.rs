//! Finds personal data in a text.
//!
//! What a text has is found by each type for itself; matches that overlap become one, of all that they cover together, so
//! that nothing of a shorter one is left over. It has the category of the longest of them, and of equally long ones that of
//! the first in this order: patterns of the settings in their order, e-mail addresses, card numbers, social security
//! numbers, telephone numbers, names. What is a token already is left out.
//!
//! Invariant: the same text and settings always give the same matches, in a time that grows with the text's length; only a
//! pattern of the settings may take longer, as `regex` says of its iterators.

mod digits;
mod email;
mod hint;
mod named;

use std::ops::Range;

use super::token;
use mooring_settings::{PersonalDataType, TokenizationSettings};

pub(super) use hint::Hint;

/// Personal data in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Match<'a> {
    /// Where it is; never empty.
    pub(super) range: Range<usize>,
    /// Its category.
    pub(super) category: &'a str,
    /// Whether it is within a JSON text, where characters may be escaped.
    pub(super) is_in_json_text: bool,
    /// That of its type: of two that are equally long, the lower rank wins.
    rank: usize,
}

/// The types and patterns to look for.
#[derive(Debug)]
pub(super) struct Detector {
    settings: TokenizationSettings,
}

impl Detector {
    pub(super) fn new(settings: TokenizationSettings) -> Self {
        Self { settings }
    }

    pub(super) fn detects(&self, wanted: PersonalDataType) -> bool {
        self.settings.types.contains(&wanted)
    }

    /// All matches of a text, from left to right, none overlapping another. `hint` is what the text's key says.
    pub(super) fn find(&self, text: &str, hint: Hint) -> Vec<Match<'_>> {
        let mut found = Vec::new();
        for (rank, (category, pattern)) in self.settings.patterns.iter().enumerate() {
            found.extend(pattern.find_iter(text).map(|one| Match {
                range: one.range(),
                category,
                rank,
                is_in_json_text: false,
            }));
        }
        self.push_built_in(&mut found, text, hint);
        // Patterns can match nothing at a boundary, such as \b, and a name can be blank.
        found.retain(|one| {
            let part = text.get(one.range.clone());
            part.is_some_and(|part| !part.trim().is_empty())
        });
        if found.is_empty() {
            return Vec::new();
        }
        without_tokens(merged(found), text)
    }

    /// Whether the decimal digits of a number are personal data, and of which category.
    pub(super) fn of_number(&self, decimal: &str, hint: Hint) -> Option<&str> {
        let custom = self
            .settings
            .patterns
            .iter()
            .find(|(_, pattern)| pattern.is_match(decimal));
        if let Some((category, _)) = custom {
            return Some(category);
        }
        let kind = digits::of_number(decimal, hint)?;
        self.detects(kind).then(|| kind.category())
    }

    fn push_built_in<'a>(&'a self, found: &mut Vec<Match<'a>>, text: &str, hint: Hint) {
        let first = self.settings.patterns.len();
        let rank = |kind| match kind {
            PersonalDataType::Email => first,
            PersonalDataType::CreditCard => first + 1,
            PersonalDataType::Ssn => first + 2,
            PersonalDataType::Phone => first + 3,
            PersonalDataType::Name => first + 4,
        };
        let mut push = |kind: PersonalDataType, range| {
            if self.detects(kind) {
                found.push(Match {
                    range,
                    category: kind.category(),
                    rank: rank(kind),
                    is_in_json_text: kind == PersonalDataType::Name && hint != Hint::Name,
                });
            }
        };
        if self.detects(PersonalDataType::Email) {
            email::find(text, |range| push(PersonalDataType::Email, range));
        }
        if digits::TYPES.iter().any(|kind| self.detects(*kind)) {
            digits::find(text, hint, &mut push);
        }
        if self.detects(PersonalDataType::Name) {
            if hint == Hint::Name {
                push(PersonalDataType::Name, 0..text.len());
            } else {
                named::find(text, |range| push(PersonalDataType::Name, range));
            }
        }
    }
}

/// Joins what overlaps.
fn merged(mut found: Vec<Match<'_>>) -> Vec<Match<'_>> {
    found.sort_by_key(|one| (one.range.start, one.rank));
    let mut all: Vec<Match<'_>> = Vec::new();
    let mut best = (0, 0);
    for one in found {
        let claim = (one.range.len(), usize::MAX - one.rank);
        match all.last_mut() {
            Some(last) if one.range.start < last.range.end => {
                last.range.end = last.range.end.max(one.range.end);
                last.is_in_json_text = false;
                if claim > best {
                    best = claim;
                    last.category = one.category;
                }
            }
            _ => {
                best = claim;
                all.push(one);
            }
        }
    }
    all
}

/// Cuts out what is a token, and drops what has nothing left but white space.
fn without_tokens<'a>(matches: Vec<Match<'a>>, text: &str) -> Vec<Match<'a>> {
    let tokens: Vec<Range<usize>> = token::find(text).map(|token| token.range).collect();
    if tokens.is_empty() {
        return matches;
    }
    let mut pieces = Vec::with_capacity(matches.len());
    let mut tokens = tokens.into_iter().peekable();
    for one in matches {
        let mut start = one.range.start;
        let mut push = |range: Range<usize>| {
            let is_blank = text
                .get(range.clone())
                .is_none_or(|text| text.trim().is_empty());
            if !is_blank {
                pieces.push(Match {
                    range,
                    ..one.clone()
                });
            }
        };
        while let Some(token) = tokens.next_if(|token| token.start < one.range.end) {
            if token.end <= start {
                continue;
            }
            push(start..token.start.max(start));
            start = token.end;
        }
        push(start.min(one.range.end)..one.range.end);
    }
    pieces
}
