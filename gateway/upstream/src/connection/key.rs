//! Request ids and progress tokens, compared by value rather than by spelling.
//!
//! Invariant: two JSON texts have the same key exactly if they are the same string or the same integer, whatever
//! escapes the sender used.

use mooring_protocol::Id;

/// The value of an id or a progress token.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Key {
    /// A string, without its escapes.
    Text(Box<str>),
    /// An integer, or a string that parsers decode differently (a lone surrogate), as written.
    Raw(Box<str>),
}

impl Key {
    /// The key of the JSON text of an id or a token.
    pub(super) fn of(json: &str) -> Self {
        match serde_json::from_str::<String>(json) {
            Ok(text) => Self::Text(text.into()),
            Err(_) => Self::Raw(json.into()),
        }
    }

    /// The key of a client's request: the gateway sends it under the client's id with a prefix.
    pub(super) fn of_client(id_json: &str) -> Self {
        Self::Text(format!("{CLIENT}{id_json}").into())
    }

    /// The client's own id as JSON, if the request is the client's.
    pub(super) fn client_id(&self) -> Option<&str> {
        let Self::Text(text) = self else {
            return None;
        };
        let id_json = text.strip_prefix(CLIENT)?;
        Id::from_json(id_json).is_ok().then_some(id_json)
    }

    /// The JSON text of the id.
    pub(super) fn to_json(&self) -> String {
        match self {
            Self::Text(text) => serde_json::Value::from(&**text).to_string(),
            Self::Raw(json) => json.to_string(),
        }
    }
}

/// The gateway's prefix of a client's id (`mcp::ids`).
const CLIENT: &str = "c:";

#[cfg(test)]
mod tests {
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
        assert_eq!(Key::of(r#""c:7""#).client_id(), Some("7"));
        assert_eq!(Key::of(r#""c:\"7\"""#).client_id(), Some(r#""7""#));
        for other in [r#""boot:7""#, r#""c:""#, r#""c:{}""#, "7"] {
            assert_eq!(Key::of(other).client_id(), None, "{other}");
        }
        assert_eq!(Key::of_client(r#""7""#), Key::of(r#""c:\"7\"""#));
    }

    #[test]
    fn a_key_survives_its_json_text() {
        for json in ["7", r#""a\"b""#, r#""\ud800""#] {
            assert_eq!(Key::of(&Key::of(json).to_json()), Key::of(json));
        }
    }
}
