//! A JSON value as text, and lookups in it.
//!
//! Invariant: no value tree is built. The output is untrusted, and a text of brackets would take many times its size in
//! memory; everything that is not looked up is skipped.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use mooring_settings::{Condition, Pointer};

/// One JSON value.
#[derive(Clone, Copy, Debug)]
pub(super) struct JsonValue<'a>(&'a RawValue);

impl<'a> JsonValue<'a> {
    /// Parses a text that is exactly one value.
    pub(super) fn parse(text: &'a str) -> Option<Self> {
        serde_json::from_str(text).ok().map(Self)
    }

    /// The value at the start of a text, and the rest of the text.
    pub(super) fn first(text: &'a str) -> Option<(Self, &'a str)> {
        let mut values = serde_json::Deserializer::from_str(text).into_iter::<&RawValue>();
        let first = values.next()?.ok()?;
        Some((Self(first), text.get(values.byte_offset()..)?))
    }

    /// The value at a pointer.
    pub(super) fn at(self, pointer: &Pointer) -> Option<Self> {
        let steps = pointer.as_str().split('/').skip(1);
        steps
            .map(unescaped)
            .try_fold(self, |value, step| value.step(&step))
    }

    /// Whether the value at the condition's pointer has the condition's text.
    pub(super) fn matches(self, condition: &Condition) -> bool {
        let value = self.at(&condition.pointer);
        let equals = |value: Self| match value.shape() {
            Shape::Text => value
                .text()
                .is_some_and(|text| text == condition.equals.as_str()),
            Shape::Other => value.0.get() == condition.equals,
            Shape::Null => condition.equals == "null",
            Shape::Several => false,
        };
        value.is_some_and(equals)
    }

    /// The content of a string, and the text of any other value; none for `null`.
    pub(super) fn text(self) -> Option<Cow<'a, str>> {
        match self.shape() {
            Shape::Null => None,
            Shape::Other | Shape::Several => Some(Cow::Borrowed(self.0.get())),
            Shape::Text => {
                let mut deserializer = serde_json::Deserializer::from_str(self.0.get());
                deserializer.deserialize_bytes(TextVisitor).ok()
            }
        }
    }

    /// The same for scalars only.
    pub(super) fn scalar(self) -> Option<Cow<'a, str>> {
        (self.shape() != Shape::Several).then_some(self)?.text()
    }

    /// Whether it is anything but `null` and `false`.
    pub(super) fn is_said(self) -> bool {
        !matches!(self.0.get(), "null" | "false")
    }

    /// Its text if it is more than a boolean.
    pub(super) fn reason(self) -> Option<Cow<'a, str>> {
        let says_more = self.is_said() && self.0.get() != "true";
        says_more.then_some(self)?.text()
    }

    fn step(self, step: &str) -> Option<Self> {
        // Only the outermost brackets are entered; their content is skipped without recursion.
        let mut deserializer = serde_json::Deserializer::from_str(self.0.get());
        PathStep(step)
            .deserialize(&mut deserializer)
            .ok()?
            .map(Self)
    }

    fn shape(self) -> Shape {
        match self.0.get().as_bytes().first() {
            Some(b'"') => Shape::Text,
            Some(b'{' | b'[') => Shape::Several,
            Some(b'n') => Shape::Null,
            _ => Shape::Other,
        }
    }
}

/// The type of a value, as far as it matters here.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    Text,
    Null,
    /// An object or an array.
    Several,
    /// A number or a boolean.
    Other,
}

/// A step of a pointer, unescaped (RFC 6901, section 4).
fn unescaped(step: &str) -> Cow<'_, str> {
    if step.contains('~') {
        Cow::Owned(step.replace("~1", "/").replace("~0", "~"))
    } else {
        Cow::Borrowed(step)
    }
}

/// Selects a member by name, or an element by index.
struct PathStep<'s>(&'s str);

impl<'de> DeserializeSeed<'de> for PathStep<'_> {
    type Value = Option<&'de RawValue>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for PathStep<'_> {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object or an array")
    }

    /// Of several members with one name the last counts, as in most JSON parsers.
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(is_it) = map.next_key_seed(IsKey(self.0))? {
            if is_it {
                found = Some(map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let is_number = self.0 == "0" || !self.0.starts_with(['0', '+']);
        let at = self.0.parse().ok().filter(|_| is_number);
        let (mut found, mut seen) = (None, 0_usize);
        while let Some(element) = list.next_element::<&RawValue>()? {
            if at == Some(seen) {
                found = Some(element);
            }
            seen = seen.saturating_add(1);
        }
        Ok(found)
    }
}

/// Compares a key, unescaped.
struct IsKey<'s>(&'s str);

impl<'de> DeserializeSeed<'de> for IsKey<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_bytes(self)
    }
}

impl Visitor<'_> for IsKey<'_> {
    type Value = bool;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<bool, E> {
        Ok(key == self.0)
    }

    fn visit_bytes<E: Error>(self, key: &[u8]) -> Result<bool, E> {
        Ok(key == self.0.as_bytes())
    }
}

/// The content of a string. Half a surrogate pair, which some runtimes print for truncated strings, becomes replacement
/// characters.
struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Cow<'de, str>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a string")
    }

    fn visit_borrowed_bytes<E: Error>(self, text: &'de [u8]) -> Result<Self::Value, E> {
        Ok(String::from_utf8_lossy(text))
    }

    fn visit_bytes<E: Error>(self, text: &[u8]) -> Result<Self::Value, E> {
        Ok(Cow::Owned(String::from_utf8_lossy(text).into_owned()))
    }
}

#[cfg(test)]
mod tests;
