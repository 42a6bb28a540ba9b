//! The index of a map in memory, as its lines were read.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Less than any line has: a number, a body and a checksum.
const LINE_BYTES_MIN: usize = 20;

/// The JSON type of a value: a number is restored as a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in super::super) enum ValueType {
    Text,
    Number,
}

/// A value of personal data with its category. Each has one token.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in super::super) struct PersonalValue {
    pub(in super::super) category: Box<str>,
    pub(in super::super) shape: ValueType,
    pub(in super::super) text: Box<str>,
}

/// Numbers by value, and values by number.
#[derive(Debug, Default)]
pub(super) struct TokenIndex {
    numbers: HashMap<PersonalValue, u32>,
    values: HashMap<u32, Option<PersonalValue>>,
    /// The highest number that was or may have been given.
    highest: u32,
}

impl TokenIndex {
    /// The number of a value.
    pub(super) fn number(&self, value: &PersonalValue) -> Option<u32> {
        self.numbers.get(value).copied()
    }

    /// The value of a number, if it has this category.
    pub(super) fn value(&self, category: &str, number: u32) -> Option<&PersonalValue> {
        let value = self.values.get(&number)?.as_ref()?;
        (*value.category == *category).then_some(value)
    }

    /// A number that no value has, nor had in a line that cannot be read.
    pub(super) fn next_number(&self) -> u32 {
        self.highest.saturating_add(1)
    }

    /// Adds a line. Two values of one number make the number unusable; of two numbers of one value the first is its
    /// token, and the other still resolves to the value.
    pub(super) fn note(&mut self, number: u32, value: PersonalValue) {
        self.highest = self.highest.max(number);
        match self.values.entry(number) {
            Entry::Vacant(place) => {
                self.numbers.entry(value.clone()).or_insert(number);
                place.insert(Some(value));
            }
            Entry::Occupied(mut place) => {
                if place.get().as_ref() != Some(&value)
                    && let Some(other) = place.insert(None)
                    && self.numbers.get(&other) == Some(&number)
                {
                    self.numbers.remove(&other);
                }
            }
        }
    }

    /// Notes a stretch that cannot be read, which may have been as many lines as fit in it.
    pub(super) fn note_damage(&mut self, bytes: usize) {
        let lines = u32::try_from(bytes / LINE_BYTES_MIN + 1).unwrap_or(u32::MAX);
        self.highest = self.highest.saturating_add(lines);
    }
}

#[cfg(test)]
mod tests {
    use super::super::ValueType;
    use super::*;

    fn value(text: &str) -> PersonalValue {
        PersonalValue {
            category: "EMAIL".into(),
            shape: ValueType::Text,
            text: text.into(),
        }
    }

    #[test]
    fn a_number_of_two_values_is_nobodys() {
        let mut index = TokenIndex::default();
        index.note(1, value("a"));
        index.note(1, value("a"));
        assert_eq!(index.number(&value("a")), Some(1));
        index.note(1, value("b"));
        assert_eq!(index.number(&value("a")), None);
        assert_eq!(index.number(&value("b")), None);
        assert_eq!(index.value("EMAIL", 1), None);
        index.note(1, value("a"));
        assert_eq!(index.value("EMAIL", 1), None);
        assert_eq!(index.next_number(), 2);
    }

    #[test]
    fn a_value_of_two_numbers_keeps_the_first_and_both_turn_back() {
        let mut index = TokenIndex::default();
        index.note(1, value("a"));
        index.note(7, value("a"));
        assert_eq!(index.number(&value("a")), Some(1));
        assert_eq!(index.value("EMAIL", 7), Some(&value("a")));
        assert_eq!(index.value("PHONE", 1), None, "another category");
        assert_eq!(index.next_number(), 8);
        index.note_damage(40);
        assert_eq!(index.next_number(), 11, "as many as three lines");
    }
}
