//! A response that arrives in chunks is rewritten like a complete one.

use bytes::Bytes;
use proptest::prelude::*;
use proptest::sample::Index;

use super::{chunks, cuts, id_json, json, object_of, other_members, respell, space};
use crate::Marker;
use crate::envelope::{Message, Sender};
use crate::ids::{Epoch, Id, PendingRequest, RequestTag, WIRE_ID_BYTES_MAX, decode, tagged_id};
use crate::rewrite::rewrite_down;
use crate::stream::{StreamError, StreamRewriter};

const TAG: RequestTag = RequestTag(10);

fn request(id_json: &str) -> PendingRequest {
    PendingRequest {
        id_json: id_json.into(),
        tag: TAG,
    }
}

/// What the rewriter releases, and how it ends.
fn streamed(id_json: &str, parts: &[&[u8]]) -> (Vec<u8>, Result<(), StreamError>) {
    let mut rewriter = StreamRewriter::new(request(id_json), usize::MAX);
    let mut out = Vec::new();
    for part in parts {
        let pushed = rewriter.push(Bytes::copy_from_slice(part));
        while let Some(chunk) = rewriter.next_chunk() {
            out.extend_from_slice(&chunk);
        }
        if pushed.is_err() {
            return (out, pushed);
        }
    }
    (out, rewriter.finish())
}

/// Checks a reply to the request with this id; `TAG:` stands for the prefix of its id.
#[track_caller]
fn check(id_json: &str, text: &str, expected: Result<&str, StreamError>) {
    let text = text.replace("TAG:", "c:0000000000000000000000000000000a:");
    let bytes = text.as_bytes();
    let whole = StreamRewriter::rewrite(Bytes::copy_from_slice(bytes), request(id_json));
    assert_eq!(
        whole.as_deref(),
        expected.map(str::as_bytes).as_ref().copied(),
        "{text}"
    );
    let single: Vec<&[u8]> = bytes.chunks(1).collect();
    for parts in [vec![bytes], single] {
        let (out, end) = streamed(id_json, &parts);
        assert_eq!(end, expected.map(drop), "{text}");
        if let Ok(expected) = expected {
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }
}

#[test]
fn the_id_is_found_at_any_position() {
    check(
        "7",
        r#"{"id":"TAG:7","result":{}}"#,
        Ok(r#"{"id":7,"result":{}}"#),
    );
    check(
        "\"a\"",
        r#" {"result":{"id":"c:1","x":["id","c:2",{"id":"c:3"}]}, "\u0069d" : "TAG:\"a\"" } "#,
        Ok(r#" {"result":{"id":"c:1","x":["id","c:2",{"id":"c:3"}]}, "\u0069d" : "a" } "#),
    );
    check(
        "2",
        r#"{"a":"\"id\":\"c:1\"","b":"}\\","id":"TAG:2","error":1}"#,
        Ok(r#"{"a":"\"id\":\"c:1\"","b":"}\\","id":2,"error":1}"#),
    );
}

#[test]
fn replies_to_other_requests_are_refused() {
    for (text, error) in [
        (r#"{"id":"TAG:8","result":{}}"#, StreamError::OtherRequest),
        (r#"{"id":7,"result":{}}"#, StreamError::OtherRequest),
        (r#"{"id":"7","result":{}}"#, StreamError::OtherRequest),
        (r#"{"id":"c::7","result":{}}"#, StreamError::OtherRequest),
        (
            r#"{"id":"c:0000000000000000000000000000000b:7","result":{}}"#,
            StreamError::OtherRequest,
        ),
        (r#"{"id":"boot:7","result":{}}"#, StreamError::OtherRequest),
        (
            r#"{"id":{"id":"TAG:7"},"result":1}"#,
            StreamError::OtherRequest,
        ),
        (r#"{"id":null,"error":{}}"#, StreamError::NoId),
        (r#"{"result":{}}"#, StreamError::NoId),
        (r#"{"result":{"id":"TAG:7"}}"#, StreamError::NoId),
        (
            r#"{"id":"TAG:7","result":{},"id":"TAG:7"}"#,
            StreamError::RepeatedKey("id"),
        ),
        (
            r#"{"id":"TAG:7","result":{},"\u0072esult":1}"#,
            StreamError::RepeatedKey("result"),
        ),
    ] {
        check("7", text, Err(error));
    }
}

#[test]
fn other_bodies_are_refused() {
    for text in [
        r#"{"id":"TAG:7"}"#,
        r#"{"id":"TAG:7","result":{}"#,
        r#"{"id":"TAG:7","result":{}} {}"#,
        r#"{"id":"TAG:7","method":"x"}"#,
        r#"{"id":"#,
        r#"{"id":"TAG:7"#,
        r#"[{"id":"TAG:7","result":{}}]"#,
        "upstream exploded",
        "<html>",
        "",
    ] {
        check("7", text, Err(StreamError::NotAResponse));
    }
}

#[test]
fn nothing_is_released_before_the_id() {
    let mut rewriter = StreamRewriter::new(request("7"), 100);
    let head = Bytes::from_static(br#"{"result":"aaaaaaaaaa"#);
    let tail = Bytes::from_static(br#","x":["c:7"]}"#);
    rewriter.push(head.clone()).unwrap();
    assert_eq!(rewriter.next_chunk(), None);
    let id = tagged_id(TAG, Id::from_json("7").unwrap());
    rewriter.push(format!(r#"","id":{id}"#).into()).unwrap();
    assert_eq!(rewriter.next_chunk().unwrap().as_ptr(), head.as_ptr());
    assert_eq!(rewriter.next_chunk().unwrap(), r#"","id":7"#);
    assert_eq!(rewriter.next_chunk(), None);
    rewriter.push(tail.clone()).unwrap();
    // Chunks around the id are not copied.
    assert_eq!(rewriter.next_chunk().unwrap().as_ptr(), tail.as_ptr());
    assert_eq!(rewriter.finish(), Ok(()));
}

#[test]
fn what_is_withheld_has_a_limit() {
    let mut rewriter = StreamRewriter::new(request("7"), 30);
    rewriter
        .push(Bytes::from_static(br#"{"result":"aaaaaaaaaa"#))
        .unwrap();
    let more = Bytes::from_static(b"aaaaaaaaaa");
    assert_eq!(rewriter.push(more), Err(StreamError::TooLong(30)));
}

#[test]
fn an_endless_id_is_cut() {
    let mut rewriter = StreamRewriter::new(request("7"), usize::MAX);
    rewriter.push(Bytes::from_static(b"{\"id\":\"")).unwrap();
    let part = Bytes::from("x".repeat(1024));
    let pushed = (0..=WIRE_ID_BYTES_MAX / 1024).map(|_| rewriter.push(part.clone()));
    assert_eq!(pushed.last(), Some(Err(StreamError::IdTooLong)));
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
        id in id_json(),
        how in 0..3_usize,
        key in id_key(),
        mut members in other_members(),
        result in json(),
        places in (any::<Index>(), any::<Index>()),
        space in space(),
        cuts in cuts(),
    ) {
        let wire = respell(&tagged_id(TAG, Id::from_json(&id).unwrap()), how);
        members.insert(places.0.index(members.len() + 1), ("\"result\"".to_owned(), result));
        members.insert(places.1.index(members.len() + 1), (key.to_owned(), wire));
        let text = object_of(&members, space);
        let message = Message::parse(text.as_bytes(), Sender::Upstream).unwrap();
        let whole = rewrite_down(&message, &Marker::of(Epoch(1))).unwrap();
        prop_assert!(request(&id).is_answered(&whole.answers.unwrap()));
        let (out, end) = streamed(&id, &chunks(text.as_bytes(), &cuts));
        prop_assert_eq!(end, Ok(()));
        prop_assert_eq!(String::from_utf8(out).unwrap(), whole.text);
    }

    #[test]
    fn output_is_independent_of_chunks(
        bytes in prop::collection::vec(prop::sample::select(br#"{}[]":,\ idc:7"#.to_vec()), 0..80),
        cuts in cuts(),
    ) {
        let whole = streamed("7", &[&bytes]);
        prop_assert_eq!(streamed("7", &chunks(&bytes, &cuts)), whole.clone());
        prop_assert!(whole.0.is_empty());
    }

    #[test]
    fn literals_are_decoded_like_other_parsers(literal in super::string_literal()) {
        let expected = serde_json::from_str::<String>(&literal).ok();
        prop_assert_eq!(decode(&literal).map(String::from), expected);
    }
}
