//! Parses the arguments of a tool call by hand, so that errors tell the agent which field to fix.
//!
//! Invariant: a tool only gets fields that it knows, each with the right type and in range.

use std::ops::RangeInclusive;

use serde_json::{Map, Value};

/// Why arguments are invalid. The text is for the agent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArgumentError {
    /// `arguments` is not an object.
    #[error("the arguments must be an object")]
    NotAnObject,
    /// A required field is missing.
    #[error("the argument `{0}` is missing")]
    Missing(&'static str),
    /// A field has the wrong type.
    #[error("the argument `{field}` must be {expected}, and is {found}")]
    Type {
        /// The field.
        field: &'static str,
        /// The expected type.
        expected: &'static str,
        /// The actual type.
        found: &'static str,
    },
    /// A number is out of range.
    #[error("the argument `{field}` must be {least} to {most}")]
    Range {
        /// The field.
        field: &'static str,
        /// The minimum.
        least: u64,
        /// The maximum.
        most: u64,
    },
    /// A text is too long.
    #[error("the argument `{field}` has {found} bytes, and may have {most}")]
    TooLong {
        /// The field.
        field: &'static str,
        /// Its length, in bytes.
        found: usize,
        /// The limit, in bytes.
        most: usize,
    },
    /// A text is not one of the allowed values.
    #[error("the argument `{field}` must be one of {allowed}")]
    Choice {
        /// The field.
        field: &'static str,
        /// The allowed values.
        allowed: &'static str,
    },
    /// A text contains NUL.
    #[error("the argument `{0}` holds a NUL character")]
    Nul(&'static str),
    /// The tool has no such field.
    #[error("unknown argument `{field}`; this tool takes {known}")]
    Unknown {
        /// The field's name, at most [`NAME_CHARS_MAX`] characters of it.
        field: String,
        /// The tool's fields.
        known: String,
    },
}

/// How many characters of an unknown field's name an error repeats.
const NAME_CHARS_MAX: usize = 60;

/// The arguments not read yet.
#[derive(Debug)]
pub struct Arguments {
    fields: Map<String, Value>,
    known: Vec<&'static str>,
}

impl Arguments {
    /// The arguments of a call; none is the same as an empty object.
    pub fn new(arguments: Option<Value>) -> Result<Self, ArgumentError> {
        let fields = match arguments {
            None | Some(Value::Null) => Map::new(),
            Some(Value::Object(fields)) => fields,
            Some(_) => return Err(ArgumentError::NotAnObject),
        };
        Ok(Self {
            fields,
            known: Vec::new(),
        })
    }

    /// Removes a field; null is the same as no field.
    fn take(&mut self, field: &'static str) -> Option<Value> {
        self.known.push(field);
        self.fields.remove(field).filter(|value| !value.is_null())
    }

    /// A required text.
    pub fn text(&mut self, field: &'static str, bytes_max: usize) -> Result<String, ArgumentError> {
        self.text_if_given(field, bytes_max)?
            .ok_or(ArgumentError::Missing(field))
    }

    /// An optional text.
    pub fn text_if_given(
        &mut self,
        field: &'static str,
        bytes_max: usize,
    ) -> Result<Option<String>, ArgumentError> {
        match self.take(field) {
            None => Ok(None),
            Some(Value::String(text)) if text.len() > bytes_max => Err(ArgumentError::TooLong {
                field,
                found: text.len(),
                most: bytes_max,
            }),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(wrong_type(field, "a string", &other)),
        }
    }

    /// An optional whole number.
    pub fn number_if_given(
        &mut self,
        field: &'static str,
        range: RangeInclusive<u64>,
    ) -> Result<Option<u64>, ArgumentError> {
        let Some(value) = self.take(field) else {
            return Ok(None);
        };
        let out_of_range = || ArgumentError::Range {
            field,
            least: *range.start(),
            most: *range.end(),
        };
        match &value {
            Value::Number(number) => match whole(number) {
                Some(number) if range.contains(&number) => Ok(Some(number)),
                Some(_) => Err(out_of_range()),
                None if number.as_f64().is_some_and(|number| number.fract() == 0.0) => {
                    Err(out_of_range())
                }
                None => Err(wrong_type(field, "a whole number", &value)),
            },
            other => Err(wrong_type(field, "a whole number", other)),
        }
    }

    /// An optional boolean, `false` by default.
    pub fn switch(&mut self, field: &'static str) -> Result<bool, ArgumentError> {
        match self.take(field) {
            None => Ok(false),
            Some(Value::Bool(is_on)) => Ok(is_on),
            Some(other) => Err(wrong_type(field, "true or false", &other)),
        }
    }

    /// An optional text that is one of several words, which `allowed` lists.
    pub fn choice_if_given<T>(
        &mut self,
        field: &'static str,
        parse: impl Fn(&str) -> Option<T>,
        allowed: &'static str,
    ) -> Result<Option<T>, ArgumentError> {
        let Some(name) = self.text_if_given(field, usize::MAX)? else {
            return Ok(None);
        };
        parse(&name)
            .map(Some)
            .ok_or(ArgumentError::Choice { field, allowed })
    }

    /// Removes a reserved field, whatever its value.
    pub fn ignore(&mut self, field: &str) {
        self.fields.remove(field);
    }

    /// Checks that no fields are left.
    pub fn finish(self) -> Result<(), ArgumentError> {
        match self.fields.keys().next() {
            None => Ok(()),
            Some(field) => Err(ArgumentError::Unknown {
                field: field.chars().take(NAME_CHARS_MAX).collect(),
                known: self.known.join(", "),
            }),
        }
    }
}

/// The number, including floats with an integral value such as `1000.0`.
fn whole(number: &serde_json::Number) -> Option<u64> {
    number.as_u64().or_else(|| {
        let number = number.as_f64()?;
        // Below this, floats are exact; all ranges are smaller.
        let is_exact = (0.0..9e15).contains(&number) && number.fract() == 0.0;
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "checked to be a whole number within both types"
        )]
        is_exact.then_some(number as u64)
    })
}

fn wrong_type(field: &'static str, expected: &'static str, found: &Value) -> ArgumentError {
    ArgumentError::Type {
        field,
        expected,
        found: match found {
            Value::Null => "null",
            Value::Bool(_) => "true or false",
            Value::Number(_) => "a number",
            Value::String(_) => "a string",
            Value::Array(_) => "an array",
            Value::Object(_) => "an object",
        },
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use serde_json::json;

    use super::*;

    fn of(value: Value) -> Arguments {
        Arguments::new(Some(value)).unwrap()
    }

    fn side(arguments: &mut Arguments) -> Result<Option<char>, ArgumentError> {
        let parse = |name: &str| match name {
            "left" => Some('l'),
            "right" => Some('r'),
            _ => None,
        };
        arguments.choice_if_given("side", parse, "\"left\" and \"right\"")
    }

    #[test]
    fn fields_of_the_right_type_are_read() {
        let mut arguments = of(json!({
            "code": "a", "n": 7, "float": 1000.0, "on": true, "side": "right", "null": null, "stream": [1],
        }));
        assert_eq!(arguments.text("code", 1), Ok("a".to_owned()));
        assert_eq!(arguments.number_if_given("n", 1..=10), Ok(Some(7)));
        assert_eq!(arguments.number_if_given("float", 1..=1000), Ok(Some(1000)));
        assert_eq!(arguments.switch("on"), Ok(true));
        assert_eq!(side(&mut arguments), Ok(Some('r')));
        assert_eq!(arguments.text_if_given("null", 1), Ok(None));
        assert_eq!(arguments.switch("absent"), Ok(false));
        arguments.ignore("stream");
        assert_eq!(arguments.finish(), Ok(()));
    }

    #[test]
    fn errors_name_the_field() {
        let check = |value: Value, read: fn(&mut Arguments) -> Result<(), ArgumentError>, text| {
            let error = read(&mut of(value)).unwrap_err();
            assert_eq!(error.to_string(), text);
        };
        let text = |a: &mut Arguments| a.text("code", 3).map(drop);
        let number = |a: &mut Arguments| a.number_if_given("n", 1..=9).map(drop);
        check(json!({}), text, "the argument `code` is missing");
        check(
            json!({"code": null}),
            text,
            "the argument `code` is missing",
        );
        check(
            json!({"code": 1}),
            text,
            "the argument `code` must be a string, and is a number",
        );
        check(
            json!({"code": "abcd"}),
            text,
            "the argument `code` has 4 bytes, and may have 3",
        );
        check(
            json!({"n": "1"}),
            number,
            "the argument `n` must be a whole number, and is a string",
        );
        check(
            json!({"n": 1.5}),
            number,
            "the argument `n` must be a whole number, and is a number",
        );
        check(json!({"n": 0}), number, "the argument `n` must be 1 to 9");
        check(json!({"n": -1}), number, "the argument `n` must be 1 to 9");
        check(
            json!({"n": 1e300}),
            number,
            "the argument `n` must be 1 to 9",
        );
        check(
            json!({"side": "top"}),
            |a| side(a).map(drop),
            "the argument `side` must be one of \"left\" and \"right\"",
        );
        assert_eq!(
            Arguments::new(Some(json!([1]))).unwrap_err(),
            ArgumentError::NotAnObject
        );
        let mut arguments = of(json!({"code": "a", "cod": "b"}));
        arguments.text("code", 3).unwrap();
        assert_eq!(
            arguments.finish().unwrap_err().to_string(),
            "unknown argument `cod`; this tool takes code"
        );
    }
}
