//! Values as they were written, before their types are known, and how a message shows them: never a secret.

use std::collections::BTreeMap;

use super::problem::shown;
use super::setting::Disclosure;

/// A value as it was written.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    /// Untyped text, from the environment or a flag.
    Word(String),
    /// A TOML string.
    Text(String),
    /// A TOML integer.
    Integer(i64),
    /// A TOML boolean.
    Switch(bool),
    /// A TOML array.
    List(Vec<Value>),
    /// A TOML table, each value with its line.
    Table(Table),
    /// Anything else that TOML can hold, and bytes that are no text, as shown to people.
    Other(String),
}

/// A value of the file and the line it starts at (from 1).
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    pub(crate) value: Value,
    pub(crate) line: usize,
}

/// One TOML table.
pub(crate) type Table = BTreeMap<String, Entry>;

impl Value {
    /// What it is, for "it is ..., not a list".
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Word(_) | Self::Text(_) => "a text",
            Self::Integer(_) => "a number",
            Self::Switch(_) => "a boolean",
            Self::List(_) => "a list",
            Self::Table(_) => "a table",
            Self::Other(_) => "something else",
        }
    }

    /// The value as a table; none if it is of another type.
    pub(crate) fn as_table(&self) -> Option<Table> {
        match self {
            Self::Table(table) => Some(table.clone()),
            _ => None,
        }
    }

    /// The value as a boolean; none if it is of another type. The environment has no booleans, so on, yes and 1 are
    /// accepted there too; the file may not.
    pub(crate) fn as_switch(&self) -> Option<bool> {
        match self {
            Self::Switch(value) => Some(*value),
            Self::Word(word) => match word.trim().to_ascii_lowercase().as_str() {
                "true" | "on" | "yes" | "1" => Some(true),
                "false" | "off" | "no" | "0" => Some(false),
                _ => None,
            },
            _ => None,
        }
    }

    /// It as a message may show it.
    pub(crate) fn shown(&self, disclosure: Disclosure) -> String {
        match self {
            Self::Word(text) | Self::Text(text) => shown(text, disclosure),
            Self::Integer(number) => number.to_string(),
            Self::Switch(value) => value.to_string(),
            Self::List(_) => "[...]".to_owned(),
            Self::Table(_) => "{...}".to_owned(),
            Self::Other(text) => text.clone(),
        }
    }
}
