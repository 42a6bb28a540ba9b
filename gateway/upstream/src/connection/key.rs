//! Request ids and progress tokens, compared by value rather than by spelling.
//!
//! Invariant: two JSON texts have the same key exactly if they are the same string or the same integer, whatever
//! escapes the sender used.

use std::collections::HashMap;

use mooring_protocol::ids::tagged_id;
use mooring_protocol::{Id, RequestOrigin, RequestTag};

/// The value of an id or a progress token.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Key {
    /// A string, without its escapes.
    Text(Box<str>),
    /// An integer, or a string that parsers decode differently (a lone surrogate), as written.
    Raw(Box<str>),
}

/// Why a request is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyRejection {
    /// A request with the same id is open: an answer could belong to either.
    Duplicate,
    /// The limit of open requests is reached.
    TooMany,
}

impl Key {
    /// Whether another request may have this key beside the open ones, of which there are at most `max`.
    pub(super) fn check_among<R>(
        &self,
        open: &HashMap<Self, R>,
        max: usize,
    ) -> Result<(), KeyRejection> {
        if open.contains_key(self) {
            Err(KeyRejection::Duplicate)
        } else if open.len() >= max {
            Err(KeyRejection::TooMany)
        } else {
            Ok(())
        }
    }

    /// The key of the JSON text of an id or a token.
    pub(super) fn of(json: &str) -> Self {
        match serde_json::from_str::<String>(json) {
            Ok(text) => Self::Text(text.into()),
            Err(_) => Self::Raw(json.into()),
        }
    }

    /// The key of a client's request, which the gateways send under its tag.
    pub(super) fn of_client(tag: RequestTag, id: Id<'_>) -> Self {
        Self::of(&tagged_id(tag, id))
    }

    /// The origin of the request with this id.
    pub(super) fn origin(&self) -> RequestOrigin<'_> {
        match self {
            Self::Text(text) => RequestOrigin::of_text(text),
            Self::Raw(_) => RequestOrigin::Foreign,
        }
    }

    /// Whether the request is a client's.
    pub(super) fn is_clients(&self) -> bool {
        matches!(self.origin(), RequestOrigin::Client { .. })
    }

    /// The JSON text of the id.
    pub(super) fn to_json(&self) -> String {
        match self {
            Self::Text(text) => serde_json::Value::from(&**text).to_string(),
            Self::Raw(json) => json.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test code")]
    use super::*;

    #[test]
    fn keys_ignore_escapes_and_distinguish_types() {
        assert_eq!(Key::of(r#""c:\"a\"""#), Key::of(r#""\u0063:\u0022a\"""#));
        assert_ne!(Key::of("1"), Key::of(r#""1""#));
        assert_ne!(Key::of(r#""\ud800""#), Key::of(r#""\ud801""#));
        assert_eq!(Key::of("-12"), Key::of("-12"));
    }

    #[test]
    fn client_requests_are_distinguished_from_the_gateways() {
        let key = Key::of_client(RequestTag(10), Id::from_json(r#""7""#).unwrap());
        assert_eq!(
            key,
            Key::of(r#""c:0000000000000000000000000000000a:\"7\"""#)
        );
        let tag = Some(RequestTag(10));
        let id = r#""7""#.into();
        assert_eq!(key.origin(), RequestOrigin::Client { id, tag });
        assert!(Key::of(r#""c::7""#).is_clients());
        for other in [r#""boot:7""#, r#""c:7""#, r#""c::""#, r#""c::{}""#, "7"] {
            assert!(!Key::of(other).is_clients(), "{other}");
        }
    }

    #[test]
    fn a_key_survives_its_json_text() {
        for json in ["7", r#""a\"b""#, r#""\ud800""#] {
            assert_eq!(Key::of(&Key::of(json).to_json()), Key::of(json));
        }
    }
}
