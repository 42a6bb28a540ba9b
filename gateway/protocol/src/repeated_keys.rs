//! Finds JSON objects that two parsers could read differently: those with the same key twice.

use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// Whether an object anywhere in the text has a key twice. One parser would take the first value, another one the last.
///
/// # Errors
/// The text is not exactly one JSON value.
pub fn has_repeated_keys(text: &str) -> Result<bool, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let is_repeated = RepeatedKeys.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(is_repeated)
}

/// Reads a value; true if one of its objects has a key twice.
#[derive(Clone, Copy)]
struct RepeatedKeys;

impl<'a> DeserializeSeed<'a> for RepeatedKeys {
    type Value = bool;

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'a> Visitor<'a> for RepeatedKeys {
    type Value = bool;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<bool, A::Error> {
        let mut keys: HashSet<String> = HashSet::new();
        let mut is_repeated = false;
        while let Some(key) = map.next_key()? {
            is_repeated |= !keys.insert(key);
            is_repeated |= map.next_value_seed(self)?;
        }
        Ok(is_repeated)
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut seq: A) -> Result<bool, A::Error> {
        let mut is_repeated = false;
        while let Some(of_item) = seq.next_element_seed(self)? {
            is_repeated |= of_item;
        }
        Ok(is_repeated)
    }

    fn visit_unit<E: Error>(self) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<bool, E> {
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test code")]
    use super::*;

    #[test]
    fn a_key_twice_is_found_at_any_depth() {
        for (text, is_repeated) in [
            (r#"{"a":1,"b":{"a":2},"c":[{"a":1},{"a":1}]}"#, false),
            (r#"{"a":1,"\u0061":2}"#, true),
            (
                r#"[0,null,true,1.5,-1,"x",{"b":[{"c":{"d":1,"d":1}}]}]"#,
                true,
            ),
        ] {
            assert_eq!(has_repeated_keys(text).unwrap(), is_repeated, "{text}");
        }
        assert!(has_repeated_keys(r#"{"a":1"#).is_err());
        assert!(has_repeated_keys(r#"{} {}"#).is_err());
    }
}
