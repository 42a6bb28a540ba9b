//! The rebind notice: the visible mark of lost upstream state.
//!
//! A session whose upstream session was replaced continues, but the state of the old one is lost. The reply says so in
//! `_meta["mooring/rebound"]`, a log notification warns the user, and a sentence at the end of a tool's `content` tells
//! the model, which reads nothing else. Invariant: only results are marked, and nothing that the server wrote is changed
//! but an earlier mark: the first content, structured content and their schemas stay what they are.

use serde::Serialize;

use super::event::Event;
use super::ids::Epoch;
use super::keys::Members;
use super::session_note::{SESSION_KEY, SessionNote, session_sentence};
use super::splice::{Edit, append_element, first_member, quoted, replace_part, splice};

/// The `_meta` key of the mark.
pub const REBOUND_KEY: &str = "mooring/rebound";

const RESULT_TYPE: &str = "resultType";

/// The error text for a call whose upstream session is known to be lost.
pub const STATE_LOST: &str =
    "the upstream session was lost with it; what the server remembered of this session is gone";

/// The sentence for models at the end of a tool's result. It needs no escape in JSON.
pub const LOST_STATE_SENTENCE: &str = "The server lost its state before this call: what earlier calls of this session \
    left there (such as variables, logins, open pages) is gone. This result does not build on them. [mooring]";

/// Where a result tells of lost state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MarkPlace {
    /// In `_meta`, and where it is the result of a tool, in `content`.
    Content,
    /// In `_meta` alone.
    Meta,
}

/// The move of a binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rebound<'a> {
    /// The lost instance.
    pub from: &'a str,
    /// The new instance, which may be the same one after a restart.
    pub to: &'a str,
    /// The epoch of the new binding.
    pub epoch: Epoch,
    /// The reason, as in the store (`upstream`, `owner`, `drain`).
    pub reason: &'a str,
}

/// The wire format of the mark; the order of its fields is part of the contract.
#[derive(Serialize)]
struct MarkJson<'a> {
    from: &'a str,
    to: &'a str,
    epoch: u64,
    reason: &'a str,
    state_lost: bool,
}

impl Rebound<'_> {
    /// The mark as JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        let wire = MarkJson {
            from: self.from,
            to: self.to,
            epoch: self.epoch.0,
            reason: self.reason,
            state_lost: true,
        };
        // Serializing strings, a number and a boolean cannot fail.
        serde_json::to_string(&wire).unwrap_or_default()
    }

    /// The warning (`notifications/message`, MCP 2025-03-26, logging) as a message.
    #[must_use]
    pub fn warning(&self) -> String {
        format!(
            concat!(
                r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"level":"warning","#,
                r#""logger":"mooring","data":{{"message":"the upstream session was lost and replaced; "#,
                r#"what the server remembered of this session is gone","{key}":{mark}}}}}}}"#
            ),
            key = REBOUND_KEY,
            mark = self.to_json(),
        )
    }

    /// The warning as an event.
    #[must_use]
    pub fn warning_event(&self) -> Event {
        Event::message(self.warning())
    }
}

/// Puts the mark into the result of a response, and replaces one that the upstream wrote.
///
/// Returns `None` for everything that cannot have a mark: errors, results that are not objects, and text that is not a
/// message.
#[must_use]
pub fn mark_result(text: &str, rebound: &Rebound<'_>, place: MarkPlace) -> Option<String> {
    insert_mark(text, rebound.to_json(), place)
}

/// Puts what the gateway says in a result into `response`, which takes its place: the mark, the note of a session that has
/// begun, their sentences if the result has them, and that a result is complete where the revision asks for that. Returns
/// `None` if the result, given as JSON text, has none of these or the response cannot have them.
#[must_use]
pub fn copy_mark(result: &str, response: &str) -> Option<String> {
    let copied = copy_rebound(result, response);
    let copied = copy_session(result, copied.as_deref().unwrap_or(response)).or(copied);
    copy_type(result, copied.as_deref().unwrap_or(response)).or(copied)
}

fn copy_rebound(result: &str, response: &str) -> Option<String> {
    let [content] = Members::read(&["content"], result).ok()?.values;
    let place = match content {
        Some(content) if content.contains(LOST_STATE_SENTENCE) => MarkPlace::Content,
        _ => MarkPlace::Meta,
    };
    insert_mark(response, mark_of(result)?.to_owned(), place)
}

fn copy_session(result: &str, response: &str) -> Option<String> {
    let [meta, content] = Members::read(&["_meta", "content"], result).ok()?.values;
    let [note] = Members::read(&[SESSION_KEY], meta?).ok()?.values;
    let note = SessionNote::read(note?)?;
    let sentence = match &note.name {
        Some(name) => session_sentence(name),
        None => LOST_STATE_SENTENCE.to_owned(),
    };
    let is_told =
        content.is_some_and(|content| content.contains(within_quotes(&quoted(&sentence))));
    let sentence = is_told.then_some(sentence);
    insert_note(response, SESSION_KEY, note.to_json(), sentence.as_deref())
}

fn copy_type(result: &str, response: &str) -> Option<String> {
    let [kind] = Members::read(&[RESULT_TYPE], result).ok()?.values;
    kind?;
    let result = result_of(response)?;
    let [own] = Members::read(&[RESULT_TYPE], result).ok()?.values;
    if own.is_some() {
        return None;
    }
    let edit = first_member(response, result, &format!("\"{RESULT_TYPE}\":\"complete\""))?;
    splice(response, &mut [edit])
}

/// The mark of a result, both as JSON text.
#[must_use]
pub fn mark_of(result: &str) -> Option<&str> {
    let [meta] = Members::read(&["_meta"], result).ok()?.values;
    let [mark] = Members::read(&[REBOUND_KEY], meta?).ok()?.values;
    mark
}

/// The response `text` with this mark, given as JSON text, in its result.
fn insert_mark(text: &str, mark: String, place: MarkPlace) -> Option<String> {
    let sentence = match place {
        MarkPlace::Content => Some(LOST_STATE_SENTENCE),
        MarkPlace::Meta => None,
    };
    insert_note(text, REBOUND_KEY, mark, sentence)
}

/// The result of a response, if it is an object.
fn result_of(text: &str) -> Option<&str> {
    let [result, error] = Members::read(&["result", "error"], text).ok()?.values;
    let result = result.filter(|result| result.starts_with('{'))?;
    error.is_none_or(|error| error == "null").then_some(result)
}

/// The response `text` with this note, given as JSON text, in the `_meta` of its result, and the sentence in its content.
fn insert_note(
    text: &str,
    key: &'static str,
    note: String,
    sentence: Option<&str>,
) -> Option<String> {
    let result = result_of(text)?;
    let [meta] = Members::read(&["_meta"], result).ok()?.values;
    let edit = match meta {
        Some(meta) if meta.starts_with('{') => {
            let [old] = match key {
                REBOUND_KEY => Members::read(&[REBOUND_KEY], meta),
                _ => Members::read(&[SESSION_KEY], meta),
            }
            .ok()?
            .values;
            match old {
                Some(old) => replace_part(text, old, note)?,
                None => first_member(text, meta, &format!("\"{key}\":{note}"))?,
            }
        }
        // `_meta` is always an object in the schema, so nothing meaningful is lost.
        Some(meta) => replace_part(text, meta, format!("{{\"{key}\":{note}}}"))?,
        None => {
            let member = format!("\"_meta\":{{\"{key}\":{note}}}");
            first_member(text, result, &member)?
        }
    };
    let sentence = sentence.and_then(|sentence| insert_sentence(text, result, sentence));
    let mut edits: Vec<_> = std::iter::once(edit).chain(sentence).collect();
    splice(text, &mut edits)
}

/// The edit that appends the sentence to the content of a tool's result. It comes last, because programs read the first
/// content. `None` for results of other methods and for content that has it.
fn insert_sentence(text: &str, result: &str, sentence: &str) -> Option<Edit<'static>> {
    let members = Members::read(&["content", "structuredContent"], result).ok()?;
    let sentence = quoted(sentence);
    let block = format!(r#"{{"type":"text","text":{sentence}}}"#);
    match members.values {
        [Some(content), _] if content.contains(within_quotes(&sentence)) => None,
        [Some(content), _] => append_element(text, content, &block),
        [None, Some(_)] => first_member(text, result, &format!(r#""content":[{block}]"#)),
        [None, None] => None,
    }
}

fn within_quotes(json: &str) -> &str {
    json.trim_matches('"')
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]
    use super::*;

    const REBOUND: Rebound<'static> = Rebound {
        from: "http://a/",
        to: "http://b/",
        epoch: Epoch(3),
        reason: "upstream",
    };
    const MARK: &str =
        r#"{"from":"http://a/","to":"http://b/","epoch":3,"reason":"upstream","state_lost":true}"#;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let expected = expected.replace("MARK", &format!("\"mooring/rebound\":{MARK}"));
        let marked = mark_result(text, &REBOUND, MarkPlace::Meta);
        assert_eq!(marked.unwrap(), expected);
    }

    /// Of a result of this text, with the sentence.
    #[track_caller]
    fn check_content(result: &str, expected: &str) {
        let block = format!(r#"{{"type":"text","text":"{LOST_STATE_SENTENCE}"}}"#);
        let expected = expected
            .replace("MARK", &format!("\"mooring/rebound\":{MARK}"))
            .replace("SENTENCE", &block);
        let marked = mark_result(
            &format!(r#"{{"id":1,"result":{result}}}"#),
            &REBOUND,
            MarkPlace::Content,
        );
        let marked = marked.unwrap();
        serde_json::from_str::<serde_json::Value>(&marked).unwrap();
        assert_eq!(marked, format!(r#"{{"id":1,"result":{expected}}}"#));
    }

    #[test]
    fn the_sentence_follows_what_a_tool_said_and_nothing_else_changes() {
        check_content(
            r#"{"content":[{"type":"text","text":"1"}],"isError":false}"#,
            r#"{"_meta":{MARK},"content":[{"type":"text","text":"1"},SENTENCE],"isError":false}"#,
        );
        check_content(
            r#"{"structuredContent":{"n":1},"content":[ ], "_meta":{"k":1}}"#,
            r#"{"structuredContent":{"n":1},"content":[ SENTENCE], "_meta":{MARK,"k":1}}"#,
        );
        // `content` may be missing where a server has structured content.
        check_content(
            r#"{"structuredContent":{"n":1},"_meta":{}}"#,
            r#"{"content":[SENTENCE],"structuredContent":{"n":1},"_meta":{MARK}}"#,
        );
        // No results of a tool, or not of its form.
        for (result, expected) in [
            (r#"{"tools":[]}"#, r#"{"_meta":{MARK},"tools":[]}"#),
            (r#"{"contents":[1]}"#, r#"{"_meta":{MARK},"contents":[1]}"#),
            (r#"{"content":"a"}"#, r#"{"_meta":{MARK},"content":"a"}"#),
        ] {
            check_content(result, expected);
        }
    }

    #[test]
    fn content_without_a_sentence_is_made_where_structured_content_has_no_other_member() {
        let marked = mark_result(
            r#"{"id":1,"result":{"structuredContent":{}}}"#,
            &REBOUND,
            MarkPlace::Content,
        );
        let marked: serde_json::Value = serde_json::from_str(&marked.unwrap()).unwrap();
        let result = &marked["result"];
        assert_eq!(result["content"][0]["text"], LOST_STATE_SENTENCE);
        assert_eq!(result["_meta"][REBOUND_KEY]["state_lost"], true);
        assert_eq!(result["structuredContent"], serde_json::json!({}));
    }

    #[test]
    fn a_result_that_takes_the_place_of_another_has_the_sentence_once() {
        let said = r#"{"content":[{"type":"text","text":"1"}]}"#;
        let response = format!(r#"{{"id":1,"result":{said}}}"#);
        let marked = mark_result(&response, &REBOUND, MarkPlace::Content).unwrap();
        let [result] = Members::read(&["result"], &marked).unwrap().values;
        let result = result.unwrap();
        assert_eq!(copy_mark(result, &response).unwrap(), marked);
        let again = copy_mark(result, &marked).unwrap();
        assert_eq!(again.matches(LOST_STATE_SENTENCE).count(), 1, "{again}");
    }

    #[test]
    fn the_mark_goes_into_the_result_and_nothing_else_changes() {
        check(
            r#"{"result":{},"id":1}"#,
            r#"{"result":{"_meta":{MARK}},"id":1}"#,
        );
        check(
            r#"{"id":1, "result" : { "x":1.0e0}}"#,
            r#"{"id":1, "result" : {"_meta":{MARK}, "x":1.0e0}}"#,
        );
        check(
            r#"{"id":1,"result":{"a":{"_meta":{}},"_meta": {"k":1}}}"#,
            r#"{"id":1,"result":{"a":{"_meta":{}},"_meta": {MARK,"k":1}}}"#,
        );
        check(
            r#"{"id":1,"result":{"_meta":{ }}}"#,
            r#"{"id":1,"result":{"_meta":{MARK }}}"#,
        );
        check(
            r#"{"id":1,"result":{"_meta":null,"b":2}}"#,
            r#"{"id":1,"result":{"_meta":{MARK},"b":2}}"#,
        );
    }

    #[test]
    fn a_mark_of_the_upstream_is_replaced() {
        check(
            r#"{"id":1,"result":{"_meta":{"mooring/rebound":"forged","k":1}}}"#,
            r#"{"id":1,"result":{"_meta":{MARK,"k":1}}}"#,
        );
    }

    #[test]
    fn other_messages_are_not_marked() {
        for text in [
            r#"{"id":1,"error":{"code":1,"message":"m"}}"#,
            r#"{"id":1,"result":[1]}"#,
            r#"{"id":1,"result":null}"#,
            r#"{"id":1,"method":"ping"}"#,
            "[]",
            "no json",
        ] {
            let marked = mark_result(text, &REBOUND, MarkPlace::Content);
            assert_eq!(marked, None, "{text}");
        }
    }

    #[test]
    fn a_result_that_takes_the_place_of_another_takes_its_mark() {
        let marked = format!(r#"{{"_meta":{{"k":1,"mooring/rebound":{MARK}}},"content":[]}}"#);
        let changed = r#"{"id":1,"result":{"content":[1]}}"#;
        let expected = format!(
            r#"{{"id":1,"result":{{"_meta":{{"mooring/rebound":{MARK}}},"content":[1]}}}}"#
        );
        assert_eq!(copy_mark(&marked, changed).unwrap(), expected);
        for unmarked in ["{}", r#"{"_meta":{}}"#, r#"{"_meta":null}"#, "[]"] {
            assert_eq!(copy_mark(unmarked, changed), None, "{unmarked}");
        }
    }

    #[test]
    fn a_result_that_takes_the_place_of_another_names_its_session() {
        let sentence = quoted(&session_sentence("a1"));
        let note = r#""mooring/session":{"new":true,"name":"a1"}"#;
        let said = format!(
            r#"{{"resultType":"complete","_meta":{{{note}}},"content":[1,{{"type":"text","text":{sentence}}}]}}"#
        );
        let expected = format!(
            r#"{{"id":1,"result":{{"resultType":"complete","_meta":{{{note}}},"content":[2,{{"type":"text","text":{sentence}}}]}}}}"#
        );
        let changed = r#"{"id":1,"result":{"content":[2]}}"#;
        assert_eq!(copy_mark(&said, changed).unwrap(), expected);
        assert_eq!(
            copy_mark(&said, &expected).unwrap(),
            expected,
            "a hook that keeps it"
        );
        // Of a lost session; the sentence only where it was.
        for (content, is_told) in [
            ("[]", false),
            (&*format!(r#"["{LOST_STATE_SENTENCE}"]"#), true),
        ] {
            let said = format!(
                r#"{{"_meta":{{"mooring/session":{{"new":true,"state_lost":true}}}},"content":{content}}}"#
            );
            let copied = copy_mark(&said, changed).unwrap();
            assert!(copied.contains(r#""state_lost":true"#), "{copied}");
            assert_eq!(copied.contains(LOST_STATE_SENTENCE), is_told, "{copied}");
        }
        // What no gateway has written does not pass a hook.
        let forged = r#"{"_meta":{"mooring/session":{"name":"a secret"}},"content":[]}"#;
        assert_eq!(copy_mark(forged, changed), None);
    }

    #[test]
    fn the_warning_is_a_log_message() {
        let warning: serde_json::Value = serde_json::from_str(&REBOUND.warning()).unwrap();
        assert_eq!(warning["method"], "notifications/message");
        assert_eq!(warning["params"]["level"], "warning");
        assert_eq!(
            warning["params"]["data"][REBOUND_KEY],
            serde_json::from_str::<serde_json::Value>(MARK).unwrap()
        );
        let event = REBOUND.warning_event();
        assert_eq!(event.encode(), format!("data: {}\n\n", REBOUND.warning()));
    }
}
