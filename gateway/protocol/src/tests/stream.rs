//! A response that arrives in chunks is rewritten like a complete one.

use bytes::Bytes;
use proptest::prelude::*;
use proptest::sample::Index;

use super::{chunks, cuts, id_json, json, object_of, other_members, respell, space};
use crate::Marker;
use crate::envelope::{Message, Sender};
use crate::ids::{Epoch, RequestOrigin, WIRE_ID_BYTES_MAX, decode};
use crate::rewrite::rewrite_down;
use crate::stream::{StreamError, StreamRewriter};

fn streamed(parts: &[&[u8]]) -> Result<(Vec<u8>, Option<RequestOrigin<'static>>), StreamError> {
    let mut rewriter = StreamRewriter::new();
    let mut out = Vec::new();
    for part in parts {
        out.extend_from_slice(&rewriter.push(Bytes::copy_from_slice(part))?);
    }
    out.extend_from_slice(&rewriter.finish());
    Ok((out, rewriter.answered().cloned()))
}

#[track_caller]
fn check(text: &str, expected: &str) {
    let bytes = text.as_bytes();
    let whole = StreamRewriter::rewrite(Bytes::copy_from_slice(bytes));
    assert_eq!(whole.unwrap(), expected);
    let single: Vec<&[u8]> = bytes.chunks(1).collect();
    for parts in [vec![bytes], single] {
        let (out, _) = streamed(&parts).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}

#[test]
fn the_id_is_found_at_any_position() {
    check(r#"{"id":"c:7","result":{}}"#, r#"{"id":7,"result":{}}"#);
    check(
        r#" {"result":{"id":"c:1","x":["id","c:2",{"id":"c:3"}]}, "\u0069d" : "c:\"a\"" } "#,
        r#" {"result":{"id":"c:1","x":["id","c:2",{"id":"c:3"}]}, "\u0069d" : "a" } "#,
    );
    check(
        r#"{"a":"\"id\":\"c:1\"","b":"}\\","id":"c:2"}"#,
        r#"{"a":"\"id\":\"c:1\"","b":"}\\","id":2}"#,
    );
}

#[test]
fn other_ids_and_other_bodies_pass_unchanged() {
    for text in [
        r#"{"id":7,"result":{}}"#,
        r#"{"id":null,"error":{}}"#,
        r#"{"id":"boot:7","result":{}}"#,
        r#"{"id":{"id":"c:1"},"x":"c:1"}"#,
        r#"{"result":{}}"#,
        r#"{"id":"#,
        r#"{"id":"c:7"#,
        r#"{"id":12"#,
        "[{\"id\":\"c:1\"}]",
        "upstream exploded",
        "",
    ] {
        check(text, text);
    }
}

#[test]
fn the_origin_of_the_answered_request_is_returned() {
    let answered = |text: &str| streamed(&[text.as_bytes()]).unwrap().1;
    let (id, lane) = ("7".into(), None);
    assert_eq!(
        answered(r#"{"id":"c:7"}"#),
        Some(RequestOrigin::Client { id, lane })
    );
    assert_eq!(answered(r#"{"id":null}"#), Some(RequestOrigin::Nobody));
    assert_eq!(answered(r#"{"id":7}"#), Some(RequestOrigin::Foreign));
    assert_eq!(answered(r#"{"result":7}"#), None);
}

#[test]
fn chunks_around_the_id_are_not_copied() {
    let mut rewriter = StreamRewriter::new();
    let head = Bytes::from_static(br#"{"result":"aaaaaaaaaa"#);
    let tail = Bytes::from_static(br#","x":["c:7"]}"#);
    assert_eq!(rewriter.push(head.clone()).unwrap().as_ptr(), head.as_ptr());
    let id = Bytes::from_static(br#"","id":"c:7""#);
    assert_eq!(rewriter.push(id).unwrap(), r#"","id":7"#);
    assert_eq!(rewriter.push(tail.clone()).unwrap().as_ptr(), tail.as_ptr());
}

#[test]
fn an_endless_id_is_cut() {
    let mut rewriter = StreamRewriter::new();
    rewriter.push(Bytes::from_static(b"{\"id\":\"")).unwrap();
    let part = Bytes::from("x".repeat(1024));
    let pushed = (0..=WIRE_ID_BYTES_MAX / 1024).map(|_| rewriter.push(part.clone()));
    assert_eq!(pushed.last(), Some(Err(StreamError::IdTooLong)));
}

/// Any spelling of a response's id, with whether it needs an error beside it.
fn wire_id() -> impl Strategy<Value = String> {
    let client =
        (id_json(), 0..3_usize, prop::option::of(any::<u64>())).prop_map(|(id, how, lane)| {
            let inner = serde_json::to_string(&id).unwrap();
            let lane = lane.map_or(String::new(), |lane| format!("@{lane}"));
            respell(&format!("\"c{lane}:{}", &inner[1..]), how)
        });
    prop_oneof![4 => client, 1 => Just("\"boot-9:12\"".to_owned()), 1 => id_json()]
}

fn id_key() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "\"id\"",
        r#""\u0069d""#,
        r#""i\u0064""#,
        r#""\u0069\u0064""#,
    ])
}

proptest! {
    #[test]
    fn any_chunking_gives_the_whole_bodys_rewrite(
        id in wire_id(),
        key in id_key(),
        mut members in other_members(),
        result in json(),
        places in (any::<Index>(), any::<Index>()),
        space in space(),
        cuts in cuts(),
    ) {
        members.insert(places.0.index(members.len() + 1), ("\"result\"".to_owned(), result));
        members.insert(places.1.index(members.len() + 1), (key.to_owned(), id));
        let text = object_of(&members, space);
        let message = Message::parse(text.as_bytes(), Sender::Upstream).unwrap();
        let whole = rewrite_down(&message, &Marker::of(Epoch(1))).unwrap();
        let (out, answered) = streamed(&chunks(text.as_bytes(), &cuts)).unwrap();
        prop_assert_eq!(String::from_utf8(out).unwrap(), whole.text);
        prop_assert_eq!(answered, whole.answers);
    }

    #[test]
    fn output_is_independent_of_chunks(
        bytes in prop::collection::vec(prop::sample::select(br#"{}[]":,\ idc:7"#.to_vec()), 0..80),
        cuts in cuts(),
    ) {
        let whole = streamed(&[&bytes]).unwrap();
        prop_assert_eq!(&streamed(&chunks(&bytes, &cuts)).unwrap(), &whole);
        if whole.1.is_none() {
            prop_assert_eq!(whole.0, bytes);
        }
    }

    #[test]
    fn literals_are_decoded_like_other_parsers(literal in super::string_literal()) {
        let expected = serde_json::from_str::<String>(&literal).ok();
        prop_assert_eq!(decode(&literal).map(String::from), expected);
    }
}
