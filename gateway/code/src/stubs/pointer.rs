//! References from one place of a schema to another.

use percent_encoding::percent_decode_str;
use serde_json::Value;

use super::limits;

/// The target of a reference. Only references within the schema are followed: nothing is fetched.
pub(super) fn target<'a>(root: &'a Value, pointer: &str) -> Option<&'a Value> {
    if pointer.len() > limits::REFERENCE_BYTES_MAX {
        return None;
    }
    let path = pointer.strip_prefix('#')?;
    // A reference is a URL, which has `%7B` for `{`.
    root.pointer(&percent_decode_str(path).decode_utf8().ok()?)
}
