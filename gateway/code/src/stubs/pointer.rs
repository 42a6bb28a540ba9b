//! References from one place of a schema to another.

use serde_json::Value;

use super::limits;

/// What a reference points to. Only references within the schema are followed: nothing is fetched.
pub(super) fn target<'a>(root: &'a Value, pointer: &str) -> Option<&'a Value> {
    if pointer.len() > limits::REFERENCE_BYTES_MAX {
        return None;
    }
    let path = pointer.strip_prefix('#')?;
    if !path.contains('%') {
        return root.pointer(path);
    }
    let decoded: Vec<u8> = percent_decoded(path.as_bytes());
    root.pointer(std::str::from_utf8(&decoded).ok()?)
}

/// `%7B` is what a reference, which is a URL, has for `{`.
fn percent_decoded(mut bytes: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(bytes.len());
    while let [first, rest @ ..] = bytes {
        let hex = |digit: &u8| char::from(*digit).to_digit(16);
        match (first, rest) {
            (b'%', [high, low, after @ ..]) if hex(high).is_some() && hex(low).is_some() => {
                let code = hex(high).unwrap_or(0) * 16 + hex(low).unwrap_or(0);
                decoded.push(u8::try_from(code).unwrap_or(b'?'));
                bytes = after;
            }
            _ => {
                decoded.push(*first);
                bytes = rest;
            }
        }
    }
    decoded
}
