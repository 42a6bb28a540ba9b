//! Event streams: the rules of the standard, for any chunks.

use proptest::prelude::*;

use super::{chunks, cuts, string_literal};
use crate::event::{Event, EventParser, EventTooLong, comment};

const EVENT_BYTES_MAX: usize = 4096;

fn events(parts: &[&[u8]]) -> Vec<Event> {
    let mut parser = EventParser::new(EVENT_BYTES_MAX);
    let mut events = Vec::new();
    for part in parts {
        parser.push(part, |event| events.push(event.unwrap()));
    }
    events
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
                data: Some("/x".into()),
                retry_ms: Some(30),
                held: None,
            }],
        ),
        ("id: a\0b\nretry: 3s\ndata: a\n\n", vec![data("a")]),
        (
            "id: p\ndata:\n\n",
            vec![Event {
                id: Some("p".into()),
                ..Event::message("")
            }],
        ),
        (
            "id: p\nretry: 5\n\n",
            vec![Event {
                id: Some("p".into()),
                retry_ms: Some(5),
                ..Event::default()
            }],
        ),
    ] {
        assert_eq!(events(&[stream.as_bytes()]), expected, "{stream:?}");
        let single: Vec<&[u8]> = stream.as_bytes().chunks(1).collect();
        assert_eq!(events(&single), expected, "{stream:?} byte by byte");
    }
}

/// The data of each event, or the beginning, the end and the length of one that is too long.
fn data_of(stream: &str, event_bytes_max: usize, piece: usize) -> Vec<String> {
    let mut parser = EventParser::new(event_bytes_max);
    let mut found = Vec::new();
    for part in stream.as_bytes().chunks(piece) {
        parser.push(part, |event| {
            found.push(match event {
                Ok(event) => String::from_utf8_lossy(&event.data.unwrap_or_default()).into_owned(),
                Err(EventTooLong { message, .. }) => {
                    let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                    let (beginning, end) = (shown(&message.beginning), shown(&message.end));
                    assert_eq!(beginning, end, "both are the whole of it");
                    format!("{} bytes: {end}", message.bytes)
                }
            });
        });
    }
    found
}

#[test]
fn an_event_over_the_limit_is_skipped_and_the_next_one_is_read() {
    for (stream, expected) in [
        ("data: 0123456789\n\n", vec!["0123456789"]),
        (
            "data: 0123456789a\n\ndata: b\n\n",
            vec!["11 bytes: 0123456789a", "b"],
        ),
        (
            "data: a\n\nid: 3\ndata:0123456789abcdef01234\nevent: message\ndata: 5\r\n\r\ndata: b\n\n",
            vec!["a", "22 bytes: 0123456789abcdef012345", "b"],
        ),
        (
            "data: 0123456\ndata: 0123456\ndata: 0\n\nid: 4\n\ndata: b\n\n",
            vec!["16 bytes: 0123456\n01234560", "", "b"],
        ),
        (
            "\u{feff}data: 0123456789abcdef\r\rdata: b\r\r",
            vec!["16 bytes: 0123456789abcdef", "b"],
        ),
        (": 0123456789abcdef\n\ndata: b\n\n", vec!["0 bytes: ", "b"]),
        ("data: 0123456789abcdef", vec![]),
    ] {
        for piece in 1..=stream.len() {
            let found = data_of(stream, 16, piece);
            assert_eq!(found, expected, "{stream:?} in pieces of {piece}");
        }
    }
}

#[test]
fn an_event_that_is_skipped_takes_no_memory() {
    let mut parser = EventParser::new(EVENT_BYTES_MAX);
    parser.push(b"data: ", |_| unreachable!("it has not ended"));
    for _ in 0..100 {
        let part = [b'x'; EVENT_BYTES_MAX / 2];
        parser.push(&part, |_| unreachable!("it has not ended"));
        assert!(parser.unfinished_bytes() <= EVENT_BYTES_MAX);
    }
    assert_eq!(parser.unfinished_bytes(), 0);
    let mut found = Vec::new();
    parser.push(b"\n\n", |event| {
        found.push(event.unwrap_err().message.bytes)
    });
    assert_eq!(found, [50 * EVENT_BYTES_MAX]);
}

#[test]
fn an_encoded_event_cannot_be_broken_by_its_fields() {
    let event = Event {
        id: Some("1\ndata: forged".into()),
        event: Some("a\r\nb".into()),
        data: Some("x\r\ny\rz\n".into()),
        retry_ms: Some(5),
        held: None,
    };
    assert_eq!(
        event.encode(),
        "id: 1data: forged\nevent: ab\nretry: 5\ndata: x\ndata: y\ndata: z\ndata:\n\n"
    );
    assert_eq!(comment("a\nb"), ": ab\n\n");
    assert_eq!(Event::message("").encode(), "data:\n\n");
    assert_eq!(Event::default().encode(), "\n");
}

#[test]
fn a_message_is_data_of_an_event_of_that_type() {
    let event = |event: Option<&str>, data: &'static str| Event {
        event: event.map(Into::into),
        ..Event::message(data)
    };
    for of_a_message in [None, Some(""), Some("message")] {
        let event = event(of_a_message, "{}");
        assert_eq!(event.as_message().unwrap(), "{}");
    }
    assert_eq!(event(Some("endpoint"), "/x").as_message(), None);
    assert_eq!(event(None, "").as_message(), None);
    assert_eq!(Event::default().as_message(), None);
}

proptest! {
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
            data: Some(data.into()),
            retry_ms,
            held: None,
        };
        prop_assert_eq!(events(&chunks(&event.encode(), &cuts)), vec![event]);
    }

    #[test]
    fn arbitrary_bytes_never_panic(
        bytes in prop::collection::vec(prop::sample::select(b"data:id\r\n {}\"c7\xef\xbb\xbf\xff".to_vec()), 0..120),
        cuts in cuts(),
    ) {
        let mut parser = EventParser::new(64);
        for part in chunks(&bytes, &cuts) {
            parser.push(part, |_| {});
        }
    }

    #[test]
    fn results_are_independent_of_chunks(
        bytes in prop::collection::vec(prop::sample::select(b"data:id\r\n {}\"c7\xef\xbb\xbf".to_vec()), 0..120),
        cuts in cuts(),
    ) {
        prop_assert_eq!(events(&chunks(&bytes, &cuts)), events(&[&bytes]));
    }
}
