//! Sets the context of a trace in the `_meta` of a message (SEP-414).
//!
//! Invariant: only the value of `params._meta.traceparent` changes, and only if its sender has set it: a server gets the
//! `_meta` that its client has sent.

use bytes::Bytes;

use super::keys::Members;
use super::splice::{Edit, Fill, span_of, splice};

/// The message, given by its text, with this `traceparent` in place of its own; none if it has none.
#[must_use]
pub fn with_traceparent(body: &[u8], traceparent: &str) -> Option<Bytes> {
    let text = std::str::from_utf8(body).ok()?;
    let [params] = Members::read(&["params"], text).ok()?.values;
    let [meta] = Members::read(&["_meta"], params?).ok()?.values;
    let [own] = Members::read(&["traceparent"], meta?).ok()?.values;
    let quoted = format!("\"{traceparent}\"");
    let edit = Edit {
        at: span_of(text, own?)?,
        with: Fill::Text(quoted.into()),
    };
    splice(text, &mut [edit]).map(Bytes::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_context_that_the_sender_has_set_is_replaced() {
        #[track_caller]
        fn check(body: &str, expected: Option<&str>) {
            let replaced = with_traceparent(body.as_bytes(), "NEW");
            assert_eq!(replaced.as_deref(), expected.map(str::as_bytes));
        }
        check(
            r#"{"params":{"arguments":{"_meta":{"traceparent":"old"}}, "_meta" : { "a":1.0e0,"traceparent" : "old","tracestate":"t"}},"id":1}"#,
            Some(
                r#"{"params":{"arguments":{"_meta":{"traceparent":"old"}}, "_meta" : { "a":1.0e0,"traceparent" : "NEW","tracestate":"t"}},"id":1}"#,
            ),
        );
        check(r#"{"params":{"_meta":{"tracestate":"t"}}}"#, None);
        check(r#"{"params":{"traceparent":"old"}}"#, None);
        check(r#"{"params":[]}"#, None);
        check(r#"{"_meta":{"traceparent":"old"}}"#, None);
        check("no message", None);
    }
}
