//! Personal data out, tokens in, and back. Everything here blocks: it may read and write the map's file.

use serde_json::{Map, Value};

use super::detect::{Detector, Hint};
use super::draft::DraftBuilder;
use super::map::{ENTRIES_MAX, PersonalValue, TokenMap, TokensError, ValueType};
use super::token;
use mooring_settings::TokenizationSettings;

/// How much of the end of a text that was cut off is left out at most, in bytes: what was cut in two is not known for what
/// it is.
const CUT_BYTES_MAX: usize = 512;

/// Tokens for one session.
#[derive(Debug)]
pub(crate) struct Tokenizer {
    detector: Detector,
    map: TokenMap,
}

impl Tokenizer {
    /// Tokens for what these settings name, kept in this map.
    pub(crate) fn new(settings: TokenizationSettings, map: TokenMap) -> Self {
        Self {
            detector: Detector::new(settings),
            map,
        }
    }

    /// A text for the agent or its code: every piece of personal data is a token.
    ///
    /// # Errors
    /// [`TokensError`]: then the text must not go out.
    pub(crate) fn hide_text(&self, text: &str) -> Result<String, TokensError> {
        let mut drafting = DraftBuilder::new(&self.detector);
        let draft = drafting.text(text.to_owned(), Hint::None);
        Ok(draft.filled(&self.tokens(&drafting.gaps)?))
    }

    /// The same for a text whose end is missing. Half a number or address is none that could be found, so what comes after
    /// the last line's end is left out too, or the last [`CUT_BYTES_MAX`] bytes where the line is longer.
    ///
    /// # Errors
    /// As [`Self::hide_text`].
    pub(crate) fn hide_cut_text(&self, text: &str) -> Result<String, TokensError> {
        let least = text.floor_char_boundary(text.len().saturating_sub(CUT_BYTES_MAX));
        let line_end = text.get(least..).and_then(|tail| tail.rfind('\n'));
        let end = line_end.map_or(least, |end| least + end + 1);
        self.hide_text(text.get(..end).unwrap_or_default())
    }

    /// A JSON value for the agent or its code: every piece of personal data in a text, in a key and in a number is a token.
    ///
    /// # Errors
    /// [`TokensError`]: then the value must not go out.
    pub(crate) fn hide_value(&self, value: Value) -> Result<Value, TokensError> {
        let mut drafting = DraftBuilder::new(&self.detector);
        let draft = drafting.value(value, Hint::None);
        Ok(draft.filled(&self.tokens(&drafting.gaps)?))
    }

    /// The arguments of a tool: every known token, also within a longer text and in a key, is replaced by its value. A
    /// text that is nothing but the token of a number is that number. What is not known stays.
    ///
    /// # Errors
    /// [`TokensError`]: then the tool must not be called.
    pub(crate) fn reveal_value(&self, value: Value) -> Result<Value, TokensError> {
        let mut wanted = Vec::new();
        collect(&value, &mut wanted);
        if wanted.is_empty() {
            return Ok(value);
        }
        wanted.sort_unstable();
        wanted.dedup();
        let wanted: Vec<(&str, u32)> = wanted
            .iter()
            .map(|(category, number)| (category.as_str(), *number))
            .collect();
        let known = self.map.values_of(&wanted)?;
        let revealing = TokenReplacer { wanted, known };
        Ok(revealing.value(value))
    }

    fn tokens(&self, gaps: &[PersonalValue]) -> Result<Vec<String>, TokensError> {
        if gaps.is_empty() {
            return Ok(Vec::new());
        }
        self.map.tokens_of(gaps)
    }
}

/// Every token of a value, by category and number.
fn collect(value: &Value, wanted: &mut Vec<(String, u32)>) {
    let of_text = |text: &str, wanted: &mut Vec<(String, u32)>| {
        let tokens = token::find(text).filter(|token| token.number <= ENTRIES_MAX);
        wanted.extend(tokens.map(|token| (token.category.to_owned(), token.number)));
    };
    match value {
        Value::String(text) => of_text(text, wanted),
        Value::Array(items) => items.iter().for_each(|item| collect(item, wanted)),
        Value::Object(fields) => {
            for (key, value) in fields {
                of_text(key, wanted);
                collect(value, wanted);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Replaces tokens by their values. `wanted` is sorted, and `known` has the value of each.
struct TokenReplacer<'a> {
    wanted: Vec<(&'a str, u32)>,
    known: Vec<Option<PersonalValue>>,
}

impl TokenReplacer<'_> {
    fn of(&self, token: &token::TokenMatch<'_>) -> Option<&PersonalValue> {
        let place = self
            .wanted
            .binary_search(&(token.category, token.number))
            .ok()?;
        self.known.get(place)?.as_ref()
    }

    fn value(&self, value: Value) -> Value {
        match value {
            Value::String(text) => self
                .number(&text)
                .unwrap_or_else(|| self.text(&text).into()),
            Value::Array(items) => {
                Value::Array(items.into_iter().map(|item| self.value(item)).collect())
            }
            Value::Object(fields) => {
                let mut object = Map::with_capacity(fields.len());
                for (key, value) in fields {
                    let own = self.text(&key);
                    let key = if object.contains_key(&own) { key } else { own };
                    object.insert(key, self.value(value));
                }
                Value::Object(object)
            }
            plain => plain,
        }
    }

    /// The number whose token is all of a text.
    fn number(&self, text: &str) -> Option<Value> {
        let token = token::find(text).next()?;
        let value = self.of(&token)?;
        let is_all = token.range == (0..text.len());
        (is_all && value.shape == ValueType::Number)
            .then(|| serde_json::from_str(&value.text).ok())
            .flatten()
    }

    fn text(&self, text: &str) -> String {
        let mut revealed = String::with_capacity(text.len());
        let mut end = 0;
        for token in token::find(text) {
            if let Some(value) = self.of(&token) {
                revealed.push_str(text.get(end..token.range.start).unwrap_or_default());
                revealed.push_str(&value.text);
                end = token.range.end;
            }
        }
        revealed.push_str(text.get(end..).unwrap_or_default());
        revealed
    }
}
