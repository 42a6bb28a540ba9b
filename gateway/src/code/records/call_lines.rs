//! The two lines that the log of calls has of each call.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The line before a call.
#[derive(Serialize, Deserialize)]
pub(super) struct BeganLine {
    pub(super) seq: u64,
    pub(super) server: String,
    pub(super) tool: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) arguments: Option<serde_json::Map<String, Value>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) omitted_bytes: Option<u64>,
    pub(super) key: String,
    pub(super) started_at_ms: u64,
}

/// The line after it.
#[derive(Serialize, Deserialize)]
pub(super) struct EndedLine {
    pub(super) seq: u64,
    pub(super) latency_ms: f64,
    #[serde(
        default,
        deserialize_with = "given",
        skip_serializing_if = "Option::is_none"
    )]
    pub(super) result: Option<Value>,
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
fn given<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}
