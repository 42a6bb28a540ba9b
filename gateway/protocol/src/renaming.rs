//! Changes the name or the arguments of a client's request.
//!
//! Invariant: only their text changes. A request that two parsers could read differently is not changed.

use std::borrow::Cow;

use super::envelope::Message;
use super::ids::decode;
use super::keys::Members;
use super::splice::{Edit, Fill, quoted, span_of, splice};

/// The object of a completion (`params.ref` of completion/complete).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reference<'a> {
    /// The prompt with this name.
    Prompt(Cow<'a, str>),
    /// The resource with this URI or URI template.
    Resource(Cow<'a, str>),
}

/// The object of a completion/complete; `None` if it is missing or duplicated.
#[must_use]
pub fn reference<'a>(message: &Message<'a>) -> Option<Reference<'a>> {
    let [kind, name, uri] = reference_members(message)?;
    match &*decode(kind?)? {
        "ref/prompt" => Some(Reference::Prompt(decode(name?)?)),
        "ref/resource" => Some(Reference::Resource(decode(uri?)?)),
        _ => None,
    }
}

/// The request with another `params.name`.
#[must_use]
pub fn with_name(message: &Message<'_>, name: &str) -> Option<String> {
    let found = Members::read(&["name"], message.raw_params()?).ok()?;
    let [raw] = found.values;
    replaced(message, raw?, name)
}

/// The JSON text of a call's `params.arguments`.
#[must_use]
pub fn arguments<'a>(message: &Message<'a>) -> Option<&'a str> {
    let found = Members::read(&["arguments"], message.raw_params()?).ok()?;
    let [raw] = found.values;
    raw
}

/// A call with other `params.arguments`, given as JSON text.
#[must_use]
pub fn with_arguments(message: &Message<'_>, arguments_json: &str) -> Option<String> {
    let params = message.raw_params()?;
    let edit = match arguments(message) {
        Some(raw) => Edit {
            at: span_of(message.text, raw)?,
            with: Fill::Text(Cow::Borrowed(arguments_json)),
        },
        None => {
            let within = span_of(message.text, params)?.start + 1;
            // The params of a call have at least its name, so a comma is due.
            let member = format!(r#""arguments":{arguments_json},"#);
            Edit {
                at: within..within,
                with: Fill::Text(Cow::Owned(member)),
            }
        }
    };
    splice(message.text, &mut [edit])
}

/// The request with another `params.ref.name`.
#[must_use]
pub fn with_reference(message: &Message<'_>, name: &str) -> Option<String> {
    let [_, raw, _] = reference_members(message)?;
    replaced(message, raw?, name)
}

fn reference_members<'a>(message: &Message<'a>) -> Option<[Option<&'a str>; 3]> {
    let found = Members::read(&["ref"], message.raw_params()?).ok()?;
    let [reference] = found.values;
    let inner = Members::read(&["type", "name", "uri"], reference?).ok()?;
    found
        .duplicate
        .or(inner.duplicate)
        .is_none()
        .then_some(inner.values)
}

fn replaced(message: &Message<'_>, raw: &str, name: &str) -> Option<String> {
    let at = span_of(message.text, raw)?;
    let with = Fill::Text(Cow::Owned(quoted(name)));
    splice(message.text, &mut [Edit { at, with }])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test code")]
    use super::*;
    use crate::envelope::Sender;

    fn message(text: &str) -> Message<'_> {
        Message::parse(text.as_bytes(), Sender::Client).unwrap()
    }

    #[test]
    fn only_the_name_of_the_call_changes() {
        let text = concat!(
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{ "arguments":{"name":"s__x","n":1.0},"#,
            r#" "name" : "s__\u0078" , "_meta":{"k":[ ]}}}"#
        );
        let expected = text.replace(r#""s__\u0078""#, r#""x\"""#);
        assert_eq!(with_name(&message(text), "x\"").unwrap(), expected);
        let nameless = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}"#;
        assert_eq!(with_name(&message(nameless), "x"), None);
    }

    #[test]
    fn only_the_arguments_of_the_call_change() {
        let text = |params: &str| {
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{{params}}}}}"#)
        };
        for (before, after) in [
            (
                r#""name":"x", "arguments" : {"a":1} ,"_meta":{"k":[ ]}"#,
                r#""name":"x", "arguments" : {"b":2} ,"_meta":{"k":[ ]}"#,
            ),
            (r#""name":"x""#, r#""arguments":{"b":2},"name":"x""#),
        ] {
            let (before, after) = (text(before), text(after));
            let changed = with_arguments(&message(&before), r#"{"b":2}"#);
            assert_eq!(changed.unwrap(), after);
            assert_eq!(arguments(&message(&after)), Some(r#"{"b":2}"#));
        }
    }

    #[test]
    fn a_completion_names_its_object() {
        let text = |reference: &str| {
            format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"completion/complete","params":{{"argument":{{"name":"a","value":""}},"ref":{reference}}}}}"#
            )
        };
        let about = |reference: &str| {
            let text = text(reference);
            super::reference(&message(&text)).map(|found| match found {
                Reference::Prompt(name) => format!("prompt {name}"),
                Reference::Resource(uri) => format!("resource {uri}"),
            })
        };
        let prompt = r#"{"type":"ref/prompt","name":"s__p","title":"T"}"#;
        assert_eq!(about(prompt).unwrap(), "prompt s__p");
        let resource = r#"{"uri":"u:{x}","type":"ref/resource"}"#;
        assert_eq!(about(resource).unwrap(), "resource u:{x}");
        for hostile in [
            r#"{"type":"ref/prompt"}"#,
            r#"{"type":"ref/other","name":"p"}"#,
            r#"{"type":"ref/prompt","name":"p","name":"q"}"#,
            r#""ref/prompt""#,
        ] {
            assert_eq!(about(hostile), None, "{hostile}");
        }
        let before = text(prompt);
        let after = with_reference(&message(&before), "p").unwrap();
        assert_eq!(after, before.replace("s__p", "p"));
    }
}
