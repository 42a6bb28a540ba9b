//! A text or a JSON value on its way to the agent, with gaps where personal data was. All gaps are found first and filled
//! together, so that a value with a thousand addresses asks the map once.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::detect::{Detector, Hint};
use super::map::{PersonalValue, ValueType};

/// A text in pieces.
pub(super) struct DraftText(Vec<Piece>);

enum Piece {
    Plain(String),
    /// The gap with this number.
    Gap(usize),
}

/// A value in pieces.
pub(super) enum DraftValue {
    Plain(Value),
    Text(DraftText),
    Array(Vec<DraftValue>),
    Object(Vec<(DraftText, DraftValue)>),
}

/// Collects the personal data found, in the order of the gaps it leaves.
pub(super) struct DraftBuilder<'a> {
    detector: &'a Detector,
    /// The values for the gaps.
    pub(super) gaps: Vec<PersonalValue>,
}

impl<'a> DraftBuilder<'a> {
    pub(super) fn new(detector: &'a Detector) -> Self {
        Self {
            detector,
            gaps: Vec::new(),
        }
    }

    /// A text under a key that says this.
    pub(super) fn text(&mut self, text: String, hint: Hint) -> DraftText {
        let matches = self.detector.find(&text, hint);
        if matches.is_empty() {
            return DraftText(vec![Piece::Plain(text)]);
        }
        let mut pieces = Vec::with_capacity(2 * matches.len() + 1);
        let mut end = 0;
        for one in matches {
            let part = |range| text.get(range).unwrap_or_default();
            let before = part(end..one.range.start);
            if !before.is_empty() {
                pieces.push(Piece::Plain(before.to_owned()));
            }
            end = one.range.end;
            let value = part(one.range);
            let unescaped = one.is_in_json_text.then(|| unescaped(value)).flatten();
            let value = unescaped.as_deref().unwrap_or(value);
            pieces.push(self.gap(one.category, ValueType::Text, value));
        }
        let rest = text.get(end..).unwrap_or_default();
        if !rest.is_empty() {
            pieces.push(Piece::Plain(rest.to_owned()));
        }
        DraftText(pieces)
    }

    /// A value under a key that says this. Elements of a list have the list's key.
    pub(super) fn value(&mut self, value: Value, hint: Hint) -> DraftValue {
        match value {
            Value::String(text) => DraftValue::Text(self.text(text, hint)),
            Value::Array(items) => {
                let items = items.into_iter().map(|item| self.value(item, hint));
                DraftValue::Array(items.collect())
            }
            Value::Object(fields) => DraftValue::Object(
                fields
                    .into_iter()
                    .map(|(key, value)| {
                        let hint = Hint::of(&key);
                        (self.text(key, Hint::None), self.value(value, hint))
                    })
                    .collect(),
            ),
            Value::Number(number) => {
                let decimal = number.to_string();
                match self.detector.of_number(&decimal, hint) {
                    Some(category) => DraftValue::Text(DraftText(vec![self.gap(
                        category,
                        ValueType::Number,
                        &decimal,
                    )])),
                    None => DraftValue::Plain(Value::Number(number)),
                }
            }
            plain @ (Value::Null | Value::Bool(_)) => DraftValue::Plain(plain),
        }
    }

    fn gap(&mut self, category: &str, shape: ValueType, text: &str) -> Piece {
        self.gaps.push(PersonalValue {
            category: category.into(),
            shape,
            text: text.into(),
        });
        Piece::Gap(self.gaps.len() - 1)
    }
}

impl DraftText {
    /// The text with a token in each gap.
    pub(super) fn filled(self, tokens: &[String]) -> String {
        let mut text = String::new();
        for piece in self.0 {
            match piece {
                Piece::Plain(part) if text.is_empty() => text = part,
                Piece::Plain(part) => text.push_str(&part),
                // There are as many tokens as there are gaps.
                Piece::Gap(number) => text.push_str(tokens.get(number).map_or("", String::as_str)),
            }
        }
        text
    }
}

impl DraftValue {
    /// The value with a token in each gap.
    pub(super) fn filled(self, tokens: &[String]) -> Value {
        match self {
            Self::Plain(value) => value,
            Self::Text(text) => Value::String(text.filled(tokens)),
            Self::Array(items) => {
                let items = items.into_iter().map(|item| item.filled(tokens));
                Value::Array(items.collect())
            }
            Self::Object(fields) => {
                let mut object = Map::with_capacity(fields.len());
                let mut next = HashMap::new();
                for (key, value) in fields {
                    let key = unused_key(&object, &mut next, key.filled(tokens));
                    object.insert(key, value.filled(tokens));
                }
                Value::Object(object)
            }
        }
    }
}

/// An escaped JSON text without its escapes, if it needs none where it is: a tool that gets it for a token gets what a
/// reader of the JSON would have got.
fn unescaped(text: &str) -> Option<String> {
    if !text.contains('\\') {
        return None;
    }
    let meant: String = serde_json::from_str(&format!("\"{text}\"")).ok()?;
    let could_stand = |letter: char| !matches!(letter, '"' | '\\') && !letter.is_control();
    meant.chars().all(could_stand).then_some(meant)
}

/// Two keys become one only where the map has no room; then the second gets a number, so that nothing is lost.
/// `next` has the first number not tried yet of each key: a thousand equal keys do not count from 2 a thousand times.
fn unused_key(object: &Map<String, Value>, next: &mut HashMap<String, u64>, key: String) -> String {
    if !object.contains_key(&key) {
        return key;
    }
    let first = next.get(&key).copied().unwrap_or(2);
    let free = (first..)
        .map(|number| (number, format!("{key}_{number}")))
        .find(|(_, other)| !object.contains_key(other));
    let Some((number, other)) = free else {
        return key;
    };
    next.insert(key, number.saturating_add(1));
    other
}
