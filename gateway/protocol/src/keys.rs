//! Reads a JSON object's members of interest in one pass, as slices of the original text.
//!
//! Invariant: a member is kept as the exact text of its value, members that nobody asked for are
//! only checked for grammar, and a key of interest that occurs twice, or in another case, is noticed,
//! because two readers of such an object may believe two different things.

use std::fmt;

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::value::RawValue;

/// An object of which some members matter.
pub(super) trait Object<'a> {
    /// The keys of those members.
    fn keys(&self) -> &'static [&'static str];

    /// A key is there that differs from this one by its case only.
    fn note_variant(&mut self, key: &'static str);

    /// Takes the value of the key at this place in [`Object::keys`] from the map.
    fn take<A: MapAccess<'a>>(&mut self, at: usize, map: &mut A) -> Result<(), A::Error>;
}

/// Members that are kept as the JSON text of their values, in the order of their keys.
#[derive(Debug, Clone, Copy)]
pub(super) struct Members<'a, const N: usize> {
    keys: &'static [&'static str],
    /// The values.
    pub(super) values: [Option<&'a str>; N],
    /// A key that was met more than once.
    pub(super) duplicate: Option<&'static str>,
    /// A key that was met in another case, which some parsers take for the key itself.
    pub(super) variant: Option<&'static str>,
}

impl<'a, const N: usize> Members<'a, N> {
    /// Nothing found yet. Keys after the first `N` are not kept here.
    pub(super) fn new(keys: &'static [&'static str]) -> Self {
        Self {
            keys,
            values: [None; N],
            duplicate: None,
            variant: None,
        }
    }

    /// Reads the members from the text of a JSON object.
    ///
    /// # Errors
    /// When the text is not one JSON value and nothing else. A value that is no object has no
    /// members.
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

/// Reads a text that holds one JSON value, and nothing else, into the object.
pub(super) fn read_object<'a, O: Object<'a>>(
    text: &'a str,
    object: &mut O,
) -> Result<Shape, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let shape = ObjectSeed(object).deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(shape)
}

/// What kind of value stood where an object was hoped for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// An object; its members were read.
    Object,
    /// An array or null.
    ArrayOrNull,
    /// A string, a number or a boolean.
    Scalar,
}

/// Reads the members of a value if it is an object, and says what it was.
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

/// A key as it was met.
enum Key {
    /// The one at this place in the list.
    Known(usize),
    /// This one of the list, but for its case.
    Variant(&'static str),
    Other,
}

/// Finds a key's place in the list. Escapes in keys are resolved by the JSON parser, so that
/// `"\u0069d"` is `id` here as it is for every other reader.
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

/// Whether a parser that does not mind the case, as Go's, would take `text` for the key: two letters outside of ASCII have
/// an ASCII letter as their other case.
fn is_same_but_for_case(key: &str, text: &str) -> bool {
    let folded = text.chars().map(|letter| match letter {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        other => other.to_ascii_lowercase(),
    });
    folded.eq(key.chars().map(|letter| letter.to_ascii_lowercase()))
}

/// Whether the text is one JSON value and nothing else.
pub(super) fn is_json(text: &str) -> Result<(), serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    IgnoredAny::deserialize(&mut deserializer)?;
    deserializer.end()
}

/// Whether objects and arrays are nested deeper than `depth_max`. The text need not be valid.
pub(super) fn is_deeper_than(text: &str, depth_max: usize) -> bool {
    // Most messages hold fewer brackets than the limit, and counting them is cheap.
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
    fn values_are_kept_as_they_are_written() {
        let text = r#" { "a" : [1 , 2], "b":1.0e400, "\u0063": "\ud800", "d": {"a":0} } "#;
        let found = Members::read(&["a", "b", "c", "x"], text).unwrap();
        assert_eq!(
            found.values,
            [Some("[1 , 2]"), Some("1.0e400"), Some(r#""\ud800""#), None]
        );
        assert_eq!(found.duplicate, None);
    }

    #[test]
    fn a_second_value_is_noticed_and_wins() {
        let found = Members::read(&["a"], r#"{"a":1,"\u0061":2}"#).unwrap();
        assert_eq!((found.values, found.duplicate), ([Some("2")], Some("a")));
    }

    #[test]
    fn a_key_in_another_case_is_noticed_and_not_taken() {
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
