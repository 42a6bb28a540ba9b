//! A value that a token stands for.

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
