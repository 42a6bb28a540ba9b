//! The two lines that the log of calls has of each call. What is written is borrowed: it may be large.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The line before a call.
#[derive(Serialize, Deserialize)]
pub(super) struct CallStartLine<'a> {
    pub(super) seq: u64,
    pub(super) server: Cow<'a, str>,
    pub(super) tool: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) arguments: Option<Cow<'a, Map<String, Value>>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) omitted_bytes: Option<u64>,
    pub(super) key: String,
    pub(super) started_at_ms: u64,
}

/// The line after it.
#[derive(Serialize, Deserialize)]
pub(super) struct CallEndLine<'a> {
    pub(super) seq: u64,
    pub(super) latency_ms: f64,
    #[serde(
        default,
        deserialize_with = "given",
        skip_serializing_if = "Option::is_none"
    )]
    pub(super) result: Option<Cow<'a, Value>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<ErrorLine>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) omitted_bytes: Option<u64>,
}

/// Why it came to nothing.
#[derive(Serialize, Deserialize)]
pub(super) struct ErrorLine {
    pub(super) kind: String,
    pub(super) message: String,
}

/// A result may be null, which is not the same as none.
fn given<'de, 'a, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Cow<'a, Value>>, D::Error> {
    Value::deserialize(deserializer).map(|value| Some(Cow::Owned(value)))
}
