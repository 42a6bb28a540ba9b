//! The response of a server of an earlier revision, as one of 2026-07-28.

use super::session_argument::add_argument;
use crate::envelope::{Kind, Message};
use crate::keys::Members;
use crate::mark::{LOST_STATE_SENTENCE, MarkPlace};
use crate::method::Method;
use crate::session_note::{SESSION_KEY, SessionNote, session_sentence};
use crate::splice::{Edit, append_element, first_member, quoted, replace_part, splice};

/// What clients may do with a result: each asks again when it needs it, because no notification of a change reaches it. It is
/// the caller's own.
pub(super) const CACHE_HINTS: &str = r#""ttlMs":0,"cacheScope":"private""#;

const RESULT_KEYS: [&str; 5] = ["resultType", "ttlMs", "cacheScope", "_meta", "content"];

/// `resources/read` of a resource that there is not, in earlier revisions; 2026-07-28 has -32602 for it.
const RESOURCE_NOT_FOUND: i64 = -32002;
/// The client has to open an address, in 2025-11-25; 2026-07-28 has no such code.
const URL_ELICITATION_REQUIRED: i64 = -32042;

/// The session that a request began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BegunSession {
    /// Its name, if the model has to repeat it.
    pub name: Option<Box<str>>,
    /// Where the result tells that an earlier session is gone with its state, if there was one.
    pub lost: Option<MarkPlace>,
}

/// The response to a request of this method as one of 2026-07-28. `begun` is noted in a result, or in an error; tools in
/// a list get the argument for a session where `lists_argument`. None if the response is to stay as it is.
#[must_use]
pub fn bridge_response(
    message: &Message<'_>,
    method: Method,
    begun: Option<&BegunSession>,
    lists_argument: bool,
) -> Option<String> {
    let outcome = message.outcome()?;
    let mut edits = match message.kind() {
        Kind::Result => result_edits(message.text(), outcome, method, begun)?,
        Kind::Error => error_edits(message.text(), outcome, begun)?,
        Kind::Request | Kind::Notification => return None,
    };
    if message.kind() == Kind::Result && method == Method::ToolsList && lists_argument {
        let [tools] = Members::read(&["tools"], outcome).ok()?.values;
        add_argument(message.text(), tools.unwrap_or("[]"), &mut edits);
    }
    splice(message.text(), &mut edits)
}

fn result_edits(
    text: &str,
    result: &str,
    method: Method,
    begun: Option<&BegunSession>,
) -> Option<Vec<Edit<'static>>> {
    if !result.starts_with('{') {
        return None;
    }
    let [kind, ttl, scope, meta, content] = Members::read(&RESULT_KEYS, result).ok()?.values;
    let mut members = Vec::new();
    if kind.is_none() {
        members.push(r#""resultType":"complete""#.to_owned());
    }
    if is_cacheable(method) && ttl.is_none() && scope.is_none() {
        members.push(CACHE_HINTS.to_owned());
    }
    let mut edits = Vec::new();
    if let Some(begun) = begun {
        let note = session_note(begun);
        match meta {
            Some(meta) if meta.starts_with('{') => edits.push(first_member(text, meta, &note)?),
            // `_meta` is always an object in the schema.
            Some(meta) => edits.push(replace_part(text, meta, format!("{{{note}}}"))?),
            None => members.push(format!("\"_meta\":{{{note}}}")),
        }
        let sentence = match (&begun.name, begun.lost) {
            _ if method != Method::ToolsCall => None,
            (Some(name), _) => Some(session_sentence(name)),
            (None, Some(MarkPlace::Content)) => Some(LOST_STATE_SENTENCE.to_owned()),
            (None, Some(MarkPlace::Meta) | None) => None,
        };
        if let Some(sentence) = sentence {
            let block = format!(r#"{{"type":"text","text":{}}}"#, quoted(&sentence));
            match content {
                Some(content) => edits.extend(append_element(text, content, &block)),
                None => members.push(format!("\"content\":[{block}]")),
            }
        }
    }
    if !members.is_empty() {
        edits.push(first_member(text, result, &members.join(","))?);
    }
    Some(edits)
}

fn session_note(begun: &BegunSession) -> String {
    let note = SessionNote {
        name: begun.name.clone(),
        state_lost: begun.lost.is_some(),
    };
    format!("\"{SESSION_KEY}\":{}", note.to_json())
}

/// Whether results of this method have cache hints (2026-07-28, caching).
const fn is_cacheable(method: Method) -> bool {
    matches!(
        method,
        Method::ToolsList
            | Method::PromptsList
            | Method::ResourcesList
            | Method::ResourceTemplatesList
            | Method::ResourcesRead
    )
}

/// The edits of an error: of a code that 2026-07-28 does not have, and of the note, which its data have unless they are no
/// object. None if it stays.
fn error_edits(
    text: &str,
    error: &str,
    begun: Option<&BegunSession>,
) -> Option<Vec<Edit<'static>>> {
    let [code, data] = Members::read(&["code", "data"], error).ok()?.values;
    let mut edits = Vec::new();
    let modern = match code?.parse() {
        Ok(RESOURCE_NOT_FOUND) => Some("-32602"),
        Ok(URL_ELICITATION_REQUIRED) => Some("-32603"),
        _ => None,
    };
    if let Some(modern) = modern {
        edits.push(replace_part(text, code?, modern.to_owned())?);
    }
    if let Some(begun) = begun {
        let note = session_note(begun);
        match data {
            Some(data) if data.starts_with('{') => edits.push(first_member(text, data, &note)?),
            Some(_) => {}
            None => edits.push(first_member(text, error, &format!("\"data\":{{{note}}}"))?),
        }
    }
    (!edits.is_empty()).then_some(edits)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test code")]
    use super::*;
    use crate::envelope::Sender;

    fn bridged(outcome: &str, method: Method, begun: Option<&BegunSession>) -> Option<String> {
        let text = format!(r#"{{"jsonrpc" : "2.0",{outcome},"id":1}}"#);
        let message = Message::parse(text.as_bytes(), Sender::Upstream).unwrap();
        let bridged = bridge_response(&message, method, begun, true)?;
        serde_json::from_str::<serde_json::Value>(&bridged).unwrap();
        let inner = bridged.strip_prefix(r#"{"jsonrpc" : "2.0","#).unwrap();
        Some(inner.strip_suffix(r#","id":1}"#).unwrap().to_owned())
    }

    #[track_caller]
    fn check(outcome: &str, method: Method, expected: &str) {
        assert_eq!(bridged(outcome, method, None).as_deref(), Some(expected));
    }

    #[test]
    fn a_result_is_complete_and_lists_are_private() {
        check(
            r#""result":{"content":[ {"type":"text","text":"1.0e0"}]}"#,
            Method::ToolsCall,
            r#""result":{"resultType":"complete","content":[ {"type":"text","text":"1.0e0"}]}"#,
        );
        check(
            r#""result" : { }"#,
            Method::CompletionComplete,
            r#""result" : {"resultType":"complete" }"#,
        );
        check(
            r#""result":{"prompts":[]}"#,
            Method::PromptsList,
            r#""result":{"resultType":"complete","ttlMs":0,"cacheScope":"private","prompts":[]}"#,
        );
    }

    #[test]
    fn an_error_has_a_code_of_the_revision() {
        for (code, expected) in [
            ("-32002", Some("-32602")),
            ("-32042", Some("-32603")),
            ("-32000", None),
        ] {
            let error = |code: &str| {
                format!(r#""error":{{"code":{code},"message":"m","data":{{"uri":"u:-32002"}}}}"#)
            };
            let bridged = bridged(&error(code), Method::ResourcesRead, None);
            assert_eq!(bridged, expected.map(error), "{code}");
        }
    }

    #[test]
    fn an_error_names_the_session_that_its_call_began() {
        let named = BegunSession {
            name: Some("a1".into()),
            lost: None,
        };
        let note = r#""mooring/session":{"new":true,"name":"a1"}"#;
        for (error, expected) in [
            (
                r#"{"code":-32000,"message":"m"}"#,
                Some(format!(
                    r#"{{"data":{{{note}}},"code":-32000,"message":"m"}}"#
                )),
            ),
            (
                r#"{"code":-32002,"message":"m","data":{"k":1}}"#,
                Some(format!(
                    r#"{{"code":-32602,"message":"m","data":{{{note},"k":1}}}}"#
                )),
            ),
            (r#"{"code":-32000,"message":"m","data":"d"}"#, None),
        ] {
            let outcome = format!(r#""error":{error}"#);
            let bridged = bridged(&outcome, Method::ToolsCall, Some(&named));
            assert_eq!(bridged, expected.map(|error| format!(r#""error":{error}"#)));
        }
    }

    #[test]
    fn a_begun_session_is_noted_and_told_to_the_model_that_has_to_repeat_it() {
        let silent = BegunSession {
            name: None,
            lost: None,
        };
        assert_eq!(
            bridged(
                r#""result":{"content":[],"_meta":{"k":1}}"#,
                Method::ToolsCall,
                Some(&silent)
            )
            .unwrap(),
            r#""result":{"resultType":"complete","content":[],"_meta":{"mooring/session":{"new":true},"k":1}}"#
        );
        let named = BegunSession {
            name: Some("a1".into()),
            lost: None,
        };
        let bridged = bridged(
            r#""result":{"content":[{"type":"text","text":"1"}]}"#,
            Method::ToolsCall,
            Some(&named),
        );
        let bridged = bridged.unwrap();
        assert!(bridged.starts_with(r#""result":{"resultType":"complete","_meta":{"mooring/session":{"new":true,"name":"a1"}},"content":[{"type":"text","text":"1"},{"type":"text","text":"This call began session a1."#), "{bridged}");
    }

    #[test]
    fn a_session_in_the_place_of_a_lost_one_says_so() {
        for (lost, is_told) in [(MarkPlace::Content, true), (MarkPlace::Meta, false)] {
            let begun = BegunSession {
                name: None,
                lost: Some(lost),
            };
            let bridged = bridged(
                r#""result":{"content":[]}"#,
                Method::ToolsCall,
                Some(&begun),
            );
            let bridged = bridged.unwrap();
            assert!(bridged.contains(r#"{"mooring/session":{"new":true,"state_lost":true}}"#));
            assert_eq!(bridged.contains(LOST_STATE_SENTENCE), is_told, "{bridged}");
        }
    }

    #[test]
    fn listed_tools_have_the_argument_for_a_session_once() {
        let list = |schema: &str| {
            format!(
                r#""result":{{"resultType":"complete","ttlMs":1,"tools":[{{"name":"a","inputSchema":{schema}}}]}}"#
            )
        };
        for (schema, expected) in [
            (
                r#"{"type":"object"}"#,
                r#"{"properties":{ARGUMENT},"type":"object"}"#,
            ),
            (r#"{"properties":{}}"#, r#"{"properties":{ARGUMENT}}"#),
            (
                r#"{"properties" : {"n":{"type":"number"}},"additionalProperties":false}"#,
                r#"{"properties" : {ARGUMENT,"n":{"type":"number"}},"additionalProperties":false}"#,
            ),
        ] {
            let bridged = bridged(&list(schema), Method::ToolsList, None).unwrap();
            let begin = bridged.find(r#""mooring_session":"#).unwrap();
            let end = begin + bridged.get(begin..).unwrap().find('}').unwrap() + 1;
            let argument = bridged.get(begin..end).unwrap().to_owned();
            assert_eq!(bridged.replace(&argument, "ARGUMENT"), list(expected));
        }
        for unchanged in [
            r#"{"properties":{"mooring_session":{}}}"#,
            "true",
            r#"{"properties":[]}"#,
        ] {
            assert_eq!(
                bridged(&list(unchanged), Method::ToolsList, None),
                Some(list(unchanged))
            );
        }
    }

    #[test]
    fn what_is_no_response_stays() {
        for text in [
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":[]}"#,
        ] {
            let message = Message::parse(text.as_bytes(), Sender::Upstream).unwrap();
            assert_eq!(
                bridge_response(&message, Method::ToolsCall, None, true),
                None
            );
        }
    }
}
