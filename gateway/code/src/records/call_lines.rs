//! The two lines that the log of calls has of each call. What is written is borrowed: it may be large.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Most bytes of arguments and results in the log of one run.
pub(super) const BODIES_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Most bytes of the log: once bodies no longer fit, there is still room for lines without them.
pub(super) const BYTES_MAX: u64 = BODIES_BYTES_MAX + 4 * 1024 * 1024;
/// Longest name of a tool or server in lists and in a line without a body, in characters.
pub(super) const NAME_CHARS_MAX: usize = 256;
/// Longest message of an error in lists, in characters.
pub(super) const ERROR_CHARS_MAX: usize = 1_000;

/// One call, as answers and records list it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct CallMade {
    /// `<server>/<tool>`.
    pub(crate) name: String,
    /// When it began, in milliseconds since 1970.
    pub(crate) started_at_ms: u64,
    /// How long it took, in milliseconds.
    pub(crate) latency_ms: f64,
    /// Whether the tool answered without an error.
    pub(crate) success: bool,
    /// The error of the call.
    pub(crate) error: Option<String>,
}

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
