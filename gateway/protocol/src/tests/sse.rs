//! Event streams: the rules of the standard, and the rewriting of what they carry.

use proptest::prelude::*;

use super::{chunks, cuts, id_json, json, string_literal};
use crate::Marker;
use crate::envelope::{Kind, Message, Sender};
use crate::event::{Event, EventError, EventParser, comment};
use crate::ids::{Epoch, RequestOrigin};
use crate::mark::Rebound;
use crate::rewrite::rewrite_up;
use crate::sse::{RewrittenEvent, SseRewriter, Verdict};

const EVENT_BYTES_MAX: usize = 4096;
const EPOCH: Epoch = Epoch(4);

fn events(parts: &[&[u8]]) -> Vec<Event<'static>> {
    let mut parser = EventParser::new(EVENT_BYTES_MAX);
    let mut events = Vec::new();
    for part in parts {
        parser
            .push(part, |event| {
                events.push(Event {
                    id: event.id.map(|id| id.into_owned().into()),
                    event: event.event.map(|event| event.into_owned().into()),
                    data: event.data.into_owned().into(),
                    retry_ms: event.retry_ms,
                });
            })
            .unwrap();
    }
    events
}

/// What comes out of the rewriter when every event gets this verdict, and what passed.
fn rewritten(parts: &[&[u8]], verdict: Verdict<'_>) -> (String, Vec<String>) {
    let mut rewriter = SseRewriter::new(Marker::of(EPOCH), EVENT_BYTES_MAX);
    let (mut out, mut seen) = (Vec::new(), Vec::new());
    for part in parts {
        let bytes = rewriter.push(part, |passing| {
            seen.push(match passing {
                RewrittenEvent::Message {
                    message,
                    down,
                    event_id,
                } => {
                    format!("{:?} {:?} {event_id:?}", message.kind(), down.answers)
                }
                RewrittenEvent::OtherType { event, .. } => (*event).to_owned(),
                RewrittenEvent::NotAMessage(error) => error.to_string(),
                RewrittenEvent::NotRewritable(error) => error.to_string(),
            });
            verdict
        });
        out.extend_from_slice(&bytes.unwrap());
    }
    (String::from_utf8(out).unwrap(), seen)
}

fn passed(stream: &str) -> String {
    rewritten(&[stream.as_bytes()], Verdict::Pass).0
}

#[test]
fn events_are_read_by_the_rules_of_the_standard() {
    let data = |data: &'static str| Event::message(data);
    for (stream, expected) in [
        ("data: a\n\n", vec![data("a")]),
        (
            "data:a\r\rdata:b\r\n\r\ndata:c\n\n",
            vec![data("a"), data("b"), data("c")],
        ),
        ("\u{feff}data:  a\ndata\ndata:b\n\n", vec![data(" a\n\nb")]),
        (": comment\nunknown: x\ndata: a:b\n\n", vec![data("a:b")]),
        ("data: a\n", vec![]),
        ("\n\n\n: only\n\n", vec![]),
        (
            "id: 7\nevent: endpoint\nretry: 30\ndata: /x\n\n",
            vec![Event {
                id: Some("7".into()),
                event: Some("endpoint".into()),
                data: "/x".into(),
                retry_ms: Some(30),
            }],
        ),
        ("id: a\0b\nretry: 3s\ndata: a\n\n", vec![data("a")]),
        (
            "id: p\ndata:\n\n",
            vec![Event {
                id: Some("p".into()),
                ..Event::default()
            }],
        ),
    ] {
        assert_eq!(events(&[stream.as_bytes()]), expected, "{stream:?}");
        let single: Vec<&[u8]> = stream.as_bytes().chunks(1).collect();
        assert_eq!(events(&single), expected, "{stream:?} byte by byte");
    }
}

#[test]
fn an_event_over_the_limit_is_refused() {
    let event_bytes_max = 16;
    let refused = Err(EventError::TooLong { event_bytes_max });
    let push = |parts: &[&str]| {
        let mut parser = EventParser::new(event_bytes_max);
        parts
            .iter()
            .try_for_each(|part| parser.push(part.as_bytes(), |_| {}))
    };
    assert_eq!(push(&["data: 0123456789\n\n"]), Ok(()));
    assert_eq!(push(&["data: 0123456789a\n\n"]), refused);
    assert_eq!(push(&["data: 01234", "56789a"]), refused);
    assert_eq!(
        push(&["data: 0123456\ndata: 0123456\n", "data: 0\n"]),
        refused
    );
}

#[test]
fn an_encoded_event_cannot_be_broken_by_its_fields() {
    let event = Event {
        id: Some("1\ndata: forged".into()),
        event: Some("a\r\nb".into()),
        data: "x\r\ny\rz\n".into(),
        retry_ms: Some(5),
    };
    assert_eq!(
        event.encode(),
        "id: 1data: forged\nevent: ab\nretry: 5\ndata: x\ndata: y\ndata: z\ndata:\n\n"
    );
    assert_eq!(comment("a\nb"), ": ab\n\n");
    assert_eq!(Event::default().encode(), "data:\n\n");
}

#[test]
fn the_data_is_rewritten_and_the_rest_passes() {
    assert_eq!(
        passed(
            ": hi\r\nid: 3\r\nevent: message\r\ndata: {\"id\":\"c:7\",\r\ndata: \"result\":{}}\r\n\r\n"
        ),
        ": hi\nid: 3\nevent: message\ndata: {\"id\":7,\ndata: \"result\":{}}\n\n"
    );
    assert_eq!(
        passed("data: {\"id\":1,\"method\":\"ping\"}\n\nid: 9\ndata: \n\nretry: 5\n\n"),
        "data: {\"id\":\"s:4:1\",\"method\":\"ping\"}\n\nid: 9\ndata:\n\nretry: 5\n\n"
    );
    assert_eq!(passed("\n\r\n"), "\n\n", "blank lines keep a stream alive");
    assert_eq!(
        passed("event: endpoint\ndata: /messages?x\n\n"),
        "event: endpoint\ndata: /messages?x\n\n"
    );
}

#[test]
fn lines_pass_before_their_event_is_complete() {
    let mut rewriter = SseRewriter::new(Marker::of(EPOCH), EVENT_BYTES_MAX);
    let mut push = |part: &str| {
        let out = rewriter.push(part.as_bytes(), |_| Verdict::Pass).unwrap();
        (
            String::from_utf8(out.to_vec()).unwrap(),
            rewriter.is_between_events(),
        )
    };
    assert_eq!(push(": keep-alive\n"), (": keep-alive\n".to_owned(), true));
    assert_eq!(push("id: 1\nda"), ("id: 1\n".to_owned(), false));
    assert_eq!(
        push("ta: {\"id\":\"c:1\",\"result\":1}\n"),
        (String::new(), false)
    );
    assert_eq!(
        push("\n"),
        ("data: {\"id\":1,\"result\":1}\n\n".to_owned(), true)
    );
}

#[test]
fn a_dropped_event_leaves_only_its_id() {
    let stream =
        "id: 1\ndata: {\"id\":1,\"method\":\"ping\"}\n\ndata: {\"id\":\"c:2\",\"result\":1}\n\n";
    let (out, seen) = rewritten(&[stream.as_bytes()], Verdict::Drop);
    assert_eq!(out, "id: 1\n\n");
    assert_eq!(seen.len(), 2);
}

#[test]
fn what_is_no_message_is_reported_and_never_passes() {
    for data in [
        "garbage",
        "[]",
        "{\"id\":1.5,\"method\":\"a\"}",
        "{\"id\":1,\"id\":2,\"method\":\"a\"}",
    ] {
        let stream = format!("data: {data}\n\n");
        let (out, seen) = rewritten(&[stream.as_bytes()], Verdict::Pass);
        assert_eq!((out.as_str(), seen.len()), ("", 1), "{data}");
    }
}

#[test]
fn a_mark_is_put_into_the_answer() {
    let rebound = Rebound {
        from: "a",
        to: "b",
        epoch: EPOCH,
        reason: "upstream",
    };
    let stream = "data: {\"method\":\"x\"}\n\ndata: {\"id\":\"c:7\",\"result\":{}}\n\n";
    let (out, seen) = rewritten(&[stream.as_bytes()], Verdict::Mark(&rebound));
    let expected = format!(
        "data: {{\"method\":\"x\"}}\n\ndata: {{\"id\":7,\"result\":{{\"_meta\":{{\"mooring/rebound\":{}}}}}}}\n\n",
        rebound.to_json()
    );
    assert_eq!(out, expected);
    let (id, lane) = ("7".into(), None);
    let answers = Some(RequestOrigin::Client { id, lane });
    assert_eq!(
        seen,
        [
            "Notification None None".to_owned(),
            format!("Result {answers:?} None")
        ]
    );
}

#[derive(Debug, Clone)]
struct Sent {
    before: &'static str,
    original: String,
    wire: String,
    id: Option<u8>,
}

/// A response to a client's request: as the client expects it and as the upstream sends it.
fn sent() -> impl Strategy<Value = Sent> {
    let before = prop::sample::select(vec!["", ": c\n", "retry: 5\n", "x: {\n"]);
    (before, id_json(), json(), prop::option::of(any::<u8>())).prop_map(
        |(before, id, result, event_id)| {
            let request = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m"}}"#);
            let request = Message::parse(request.as_bytes(), Sender::Client).unwrap();
            let up = rewrite_up(&request, None).unwrap().text.into_owned();
            let up = Message::parse(up.as_bytes(), Sender::Client).unwrap();
            assert_eq!(up.kind(), Kind::Request);
            let answer =
                |id: &str| format!("{{\"id\":{id},\"result\":{result}}}").replace('\r', "\n");
            Sent {
                before,
                original: answer(&id),
                wire: answer(up.id().unwrap().as_json()),
                id: event_id,
            }
        },
    )
}

proptest! {
    #[test]
    fn a_stream_keeps_its_events_in_any_chunks(
        sent in prop::collection::vec(sent(), 0..5),
        line_end in prop::sample::select(vec!["\n", "\r", "\r\n"]),
        mark in prop::sample::select(vec!["", "\u{feff}"]),
        cuts in cuts(),
    ) {
        let mut stream = String::new();
        for event in &sent {
            stream.push_str(event.before);
            if let Some(id) = event.id {
                stream.push_str(&format!("id: {id}\n"));
            }
            for line in event.wire.split('\n') {
                stream.push_str(&format!("data: {line}\n"));
            }
            stream.push('\n');
        }
        let stream = format!("{mark}{}", stream.replace('\n', line_end));
        let parts = chunks(stream.as_bytes(), &cuts);
        let (out, seen) = rewritten(&parts, Verdict::Pass);
        prop_assert_eq!(seen.len(), sent.len());
        prop_assert_eq!(&out, &rewritten(&[stream.as_bytes()], Verdict::Pass).0);
        let received = events(&[out.as_bytes()]);
        prop_assert_eq!(received.len(), sent.len());
        for (received, sent) in received.iter().zip(&sent) {
            prop_assert_eq!(&received.data, &sent.original);
            let id = sent.id.map(|id| id.to_string());
            prop_assert_eq!(received.id.as_deref(), id.as_deref());
        }
    }

    #[test]
    fn an_encoded_event_is_read_back(
        data in "[^\r]*",
        event in prop::option::of("[a-z]{1,8}"),
        id in prop::option::of(string_literal()),
        retry_ms in prop::option::of(any::<u64>()),
        cuts in cuts(),
    ) {
        prop_assume!(data.len() < EVENT_BYTES_MAX / 2);
        let event = Event {
            id: id.map(Into::into),
            event: event.map(Into::into),
            data: data.into(),
            retry_ms,
        };
        prop_assert_eq!(events(&chunks(&event.encode(), &cuts)), vec![event]);
    }

    #[test]
    fn arbitrary_bytes_never_panic(
        bytes in prop::collection::vec(prop::sample::select(b"data:id\r\n {}\"c7\xef\xbb\xbf\xff".to_vec()), 0..120),
        cuts in cuts(),
    ) {
        let mut rewriter = SseRewriter::new(Marker::of(EPOCH), 64);
        for part in chunks(&bytes, &cuts) {
            if rewriter.push(part, |_| Verdict::Pass).is_err() {
                break;
            }
        }
    }
}

#[test]
fn an_id_counts_whether_its_event_has_data_or_not() {
    for (stream, expected) in [
        ("id: 0/1\nretry: 200\ndata: \n\n", true),
        ("id: 0/1\n\n", true),
        (
            "id: 0/1\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"m\"}\n\n",
            true,
        ),
        // An empty id names none, and an unfinished event is none.
        ("id\ndata: \n\n", false),
        ("id: 0/1\ndata: ", false),
        (": id: 0/1\n\n", false),
    ] {
        let mut rewriter = SseRewriter::new(Marker::of(EPOCH), EVENT_BYTES_MAX);
        rewriter.push(stream.as_bytes(), |_| Verdict::Pass).unwrap();
        assert_eq!(rewriter.has_event_ids(), expected, "{stream:?}");
    }
}
