//! Reads the relevant members of a JSON object in one pass, as slices of the original text.
//!
//! Invariant: values are kept as their exact text; other members are only checked for grammar; a relevant key that is
//! duplicated or differs only in case is reported, because two parsers could read such an object differently.

use std::fmt;

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::value::RawValue;

/// An object with some relevant members.
pub(super) trait Object<'a> {
    /// The relevant keys.
    fn keys(&self) -> &'static [&'static str];

    /// Reports a key that differs from this one only in case.
    fn note_variant(&mut self, key: &'static str);

    /// Reads the value of the key at index `at` of [`Object::keys`] from the map.
    fn take<A: MapAccess<'a>>(&mut self, at: usize, map: &mut A) -> Result<(), A::Error>;
}

/// Members as the JSON text of their values, in the order of their keys.
#[derive(Debug, Clone, Copy)]
pub(super) struct Members<'a, const N: usize> {
    keys: &'static [&'static str],
    /// The values.
    pub(super) values: [Option<&'a str>; N],
    /// A duplicated key.
    pub(super) duplicate: Option<&'static str>,
    /// A key that differs only in case, which some parsers accept as the key itself.
    pub(super) variant: Option<&'static str>,
}

impl<'a, const N: usize> Members<'a, N> {
    /// No members yet. Keys after the first `N` are not kept.
    pub(super) fn new(keys: &'static [&'static str]) -> Self {
        Self {
            keys,
            values: [None; N],
            duplicate: None,
            variant: None,
        }
    }

    /// Reads the members from the text of a JSON object. Other JSON values have no members.
    ///
    /// # Errors
    /// The text is not exactly one JSON value.
    pub(super) fn read(
        keys: &'static [&'static str; N],
        text: &'a str,
    ) -> Result<Self, serde_json::Error> {
        let mut members = Self::new(keys);
        read_object(text, &mut members)?;
        Ok(members)
    }
}

impl<'a, const N: usize> Object<'a> for Members<'a, N> {
    fn keys(&self) -> &'static [&'static str] {
        self.keys
    }

    fn note_variant(&mut self, key: &'static str) {
        self.variant = self.variant.or(Some(key));
    }

    fn take<A: MapAccess<'a>>(&mut self, at: usize, map: &mut A) -> Result<(), A::Error> {
        let value: &'a RawValue = map.next_value()?;
        if let (Some(slot), Some(key)) = (self.values.get_mut(at), self.keys.get(at)) {
            if slot.is_some() {
                self.duplicate = self.duplicate.or(Some(key));
            }
            *slot = Some(value.get());
        }
        Ok(())
    }
}

/// Reads a text with exactly one JSON value into the object.
pub(super) fn read_object<'a, O: Object<'a>>(
    text: &'a str,
    object: &mut O,
) -> Result<Shape, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let shape = ObjectSeed(object).deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(shape)
}

/// The kind of a value where an object is expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// An object, whose members were read.
    Object,
    /// An array or null.
    ArrayOrNull,
    /// A string, a number or a boolean.
    Scalar,
}

/// Reads the members of a value if it is an object, and returns its kind.
pub(super) struct ObjectSeed<'f, O>(pub(super) &'f mut O);

impl<'a, O: Object<'a>> DeserializeSeed<'a> for ObjectSeed<'_, O> {
    type Value = Shape;

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<Shape, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'a, O: Object<'a>> Visitor<'a> for ObjectSeed<'_, O> {
    type Value = Shape;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<Shape, A::Error> {
        while let Some(key) = map.next_key_seed(KeySeed(self.0.keys()))? {
            match key {
                Key::Known(at) => {
                    self.0.take(at, &mut map)?;
                    continue;
                }
                Key::Variant(known) => self.0.note_variant(known),
                Key::Other => {}
            }
            map.next_value::<IgnoredAny>()?;
        }
        Ok(Shape::Object)
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut seq: A) -> Result<Shape, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Shape::ArrayOrNull)
    }

    fn visit_unit<E: Error>(self) -> Result<Shape, E> {
        Ok(Shape::ArrayOrNull)
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Shape, E> {
        Ok(Shape::Scalar)
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Shape, E> {
        Ok(Shape::Scalar)
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Shape, E> {
        Ok(Shape::Scalar)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Shape, E> {
        Ok(Shape::Scalar)
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<Shape, E> {
        Ok(Shape::Scalar)
    }
}

/// A key of the object.
enum Key {
    /// The relevant key with this index.
    Known(usize),
    /// A key that differs from this relevant one only in case.
    Variant(&'static str),
    Other,
}

/// Looks up a key. The JSON parser resolves escapes, so `"\u0069d"` is `id`, as for every other parser.
struct KeySeed(&'static [&'static str]);

impl<'a> DeserializeSeed<'a> for KeySeed {
    type Value = Key;

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for KeySeed {
    type Value = Key;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a key")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        if let Some(at) = self.0.iter().position(|key| *key == text) {
            return Ok(Key::Known(at));
        }
        let variant = self.0.iter().find(|key| is_same_but_for_case(key, text));
        Ok(variant.map_or(Key::Other, |key| Key::Variant(key)))
    }
}

/// Whether a case-insensitive parser such as Go's would take `text` for the key. Two letters outside ASCII have an
/// ASCII letter as their other case.
pub(super) fn is_same_but_for_case(key: &str, text: &str) -> bool {
    let folded = text.chars().map(|letter| match letter {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        other => other.to_ascii_lowercase(),
    });
    folded.eq(key.chars().map(|letter| letter.to_ascii_lowercase()))
}

/// Whether the text is exactly one JSON value.
pub(super) fn is_json(text: &str) -> Result<(), serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    IgnoredAny::deserialize(&mut deserializer)?;
    deserializer.end()
}

/// Whether objects and arrays are nested deeper than `depth_max`. The text need not be valid.
pub(super) fn is_deeper_than(text: &str, depth_max: usize) -> bool {
    // Most messages have fewer brackets than the limit, and counting them is cheap.
    let bytes = text.as_bytes();
    if memchr::memchr2_iter(b'{', b'[', bytes).count() <= depth_max {
        return false;
    }
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for byte in bytes {
        if in_string {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_string = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > depth_max {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test code")]
    use super::*;

    #[test]
    fn values_are_kept_verbatim() {
        let text = r#" { "a" : [1 , 2], "b":1.0e400, "\u0063": "\ud800", "d": {"a":0} } "#;
        let found = Members::read(&["a", "b", "c", "x"], text).unwrap();
        assert_eq!(
            found.values,
            [Some("[1 , 2]"), Some("1.0e400"), Some(r#""\ud800""#), None]
        );
        assert_eq!(found.duplicate, None);
    }

    #[test]
    fn duplicates_are_reported_and_the_last_wins() {
        let found = Members::read(&["a"], r#"{"a":1,"\u0061":2}"#).unwrap();
        assert_eq!((found.values, found.duplicate), ([Some("2")], Some("a")));
    }

    #[test]
    fn keys_in_another_case_are_reported_and_ignored() {
        for text in [
            r#"{"Name":1}"#,
            r#"{"n\u0041me":1}"#,
            r#"{"name":2,"NAME":1}"#,
        ] {
            let found = Members::read(&["name", "task"], text).unwrap();
            assert_eq!(found.variant, Some("name"), "{text}");
            assert_ne!(found.values[0], Some("1"), "{text}");
        }
        let found = Members::read(&["name", "task"], "{\"ta\u{17f}\u{212a}\":1}").unwrap();
        assert_eq!(found.variant, Some("task"));
        let found = Members::read(&["name"], r#"{"names":1,"nam":2,"n-me":3}"#).unwrap();
        assert_eq!(found.variant, None);
    }

    #[test]
    fn depth_is_counted_outside_of_strings_only() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(!is_deeper_than(&nested(9), 9));
        assert!(is_deeper_than(&nested(10), 9));
        assert!(is_deeper_than(&format!(r#"["\"",{}]"#, nested(9)), 9));
        assert!(!is_deeper_than(&"[]".repeat(50), 9));
        assert!(!is_deeper_than(
            &format!(r#"["{}\"["]"#, "[{".repeat(50)),
            9
        ));
    }
}
