//! A JSON object without some of its members.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::splice::quoted;

/// The object, given as JSON text, without the members whose key `is_left_out`; none if it has none of them.
///
/// # Errors
/// The text is no object, or a key is no text.
pub(super) fn without_members(
    object: &str,
    is_left_out: impl Fn(&str) -> bool,
) -> Result<Option<String>, serde_json::Error> {
    let OrderedMembers(members) = serde_json::from_str(object)?;
    if !members.iter().any(|(key, _)| is_left_out(key)) {
        return Ok(None);
    }
    let kept = members.iter().filter(|(key, _)| !is_left_out(key));
    let kept: Vec<String> = kept
        .map(|(key, value)| format!("{}:{}", quoted(key), value.get()))
        .collect();
    Ok(Some(format!("{{{}}}", kept.join(","))))
}

/// The members of an object in their order, also those with the same key.
struct OrderedMembers<'a>(Vec<(String, &'a RawValue)>);

impl<'a> Deserialize<'a> for OrderedMembers<'a> {
    fn deserialize<D: Deserializer<'a>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MembersVisitor)
    }
}

struct MembersVisitor;

impl<'a> Visitor<'a> for MembersVisitor {
    type Value = OrderedMembers<'a>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry()? {
            members.push(member);
        }
        Ok(OrderedMembers(members))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test code")]
    use super::*;

    #[test]
    fn other_members_keep_their_order_and_the_bytes_of_their_values() {
        let without_x = |text| without_members(text, |key| key == "x").unwrap();
        assert_eq!(
            without_x(r#"{ "a" : [1 , 2.0e0], "x":{"x":1}, "\u0078":2, "é":"\ud83d", "a":1}"#)
                .as_deref(),
            Some(r#"{"a":[1 , 2.0e0],"é":"\ud83d","a":1}"#)
        );
        assert_eq!(without_x(r#"{"x":1}"#).as_deref(), Some("{}"));
        assert_eq!(without_x(r#"{"a":{"x":1}}"#), None);
        for unreadable in ["[]", "1", r#"{"\ud800":1}"#] {
            assert!(
                without_members(unreadable, |_| true).is_err(),
                "{unreadable}"
            );
        }
    }
}
