//! Envelopes that are let in, and all that are not.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]
use http::{HeaderMap, HeaderValue, Method};
use mooring_session::names::{Principal, ServerName};

use super::*;
use crate::fleet::Operation;
use crate::fleet::replay::WINDOW_MS;

const NOW: u64 = 1_800_000_000_000;

fn worker(id: &str) -> WorkerId {
    WorkerId::parse(id.as_bytes()).unwrap()
}

fn gate(id: &str, keys: &[&str]) -> Gate {
    let keys: Vec<_> = keys.iter().map(|key| key.as_bytes()).collect();
    Gate::new(worker(id), &KeyRing::of(&keys))
}

fn forward() -> Forward {
    let mut headers = HeaderMap::new();
    headers.append("last-event-id", HeaderValue::from_static("7"));
    headers.append("mcp-param-a", HeaderValue::from_static("one"));
    headers.append(
        "mcp-param-a",
        HeaderValue::from_bytes(b"tw\xc3\xb6").unwrap(),
    );
    Forward {
        operation: Operation::Serve,
        session_key: "mcpgw:session_affinity:0123".into(),
        principal: Principal::parse("zo\u{eb}@example.org".as_bytes()).unwrap(),
        server: ServerName::parse(b"files").unwrap(),
        epoch: u64::MAX,
        method: Method::POST,
        headers,
        body: Bytes::from_static(b"{}"),
    }
}

/// The envelope that `a:1` sends to `b:1` now, without the length before it, and its exchange.
fn sealed(from: &Gate) -> (Bytes, Exchange) {
    let Sealed { front, exchange } = from.seal(&worker("b:1"), &forward(), NOW).unwrap();
    let (length, envelope) = front.split_first_chunk().unwrap();
    assert_eq!(u32::from_be_bytes(*length) as usize, envelope.len());
    (front.slice(4..), exchange)
}

#[test]
fn what_is_asked_arrives_as_it_was_asked() {
    let (a, b) = (gate("a:1", &["k"]), gate("b:1", &["k"]));
    for operation in Operation::ALL {
        let mut asked = forward();
        asked.operation = operation;
        let front = a.seal(&worker("b:1"), &asked, NOW).unwrap().front;
        let admitted = b.admit(&front[4..], NOW).unwrap();
        assert_eq!(admitted.from, worker("a:1"));
        assert_eq!(admitted.addressed, Addressed::Here);
        assert!(admitted.body.is_of(b"{}"));
        assert!(!admitted.body.is_of(b"{ }") && !admitted.body.is_of(b""));
        let mut arrived = admitted.forward;
        arrived.body = Bytes::from_static(b"{}");
        assert_eq!(arrived, asked);
    }
}

#[test]
fn no_bit_can_be_changed() {
    let (a, b) = (gate("a:1", &["k"]), gate("b:1", &["k"]));
    let (envelope, _) = sealed(&a);
    for bit in 0..envelope.len() * 8 {
        let mut changed = envelope.to_vec();
        changed[bit / 8] ^= 1 << (bit % 8);
        let refused = b.admit(&changed, NOW).unwrap_err();
        let expected = match bit {
            0..8 => Refused::Version(VERSION ^ (1 << bit)),
            _ => Refused::NotAuthentic,
        };
        assert_eq!(refused, expected, "bit {bit}");
    }
    assert!(b.admit(&envelope, NOW).is_ok(), "none of them used it up");
}

#[test]
fn no_byte_can_be_missing_or_added() {
    let (a, b) = (gate("a:1", &["k"]), gate("b:1", &["k"]));
    let (envelope, _) = sealed(&a);
    for length in 0..envelope.len() {
        assert!(b.admit(&envelope[..length], NOW).is_err(), "{length}");
        assert!(b.admit(&envelope[length + 1..], NOW).is_err(), "{length}");
    }
    assert!(b.admit(&[&envelope[..], b"\0"].concat(), NOW).is_err());
    assert!(
        b.admit(&vec![VERSION; ENVELOPE_BYTES_MAX + 1], NOW)
            .is_err()
    );
}

#[test]
fn an_envelope_is_let_in_once() {
    let (a, b) = (gate("a:1", &["k"]), gate("b:1", &["k"]));
    let (envelope, _) = sealed(&a);
    assert!(b.admit(&envelope, NOW).is_ok());
    for later_ms in [0, 1, WINDOW_MS] {
        let refused = b.admit(&envelope, NOW + later_ms).unwrap_err();
        assert_eq!(refused, Refused::Replayed, "{later_ms}");
    }
    let refused = b.admit(&envelope, NOW + WINDOW_MS + 1).unwrap_err();
    assert_eq!(refused, Refused::TooOld);
    assert!(b.admit(&sealed(&a).0, NOW).is_ok(), "the same asked again");
}

#[test]
fn an_envelope_holds_for_a_while() {
    let (a, b) = (gate("a:1", &["k"]), gate("b:1", &["k"]));
    for (now_ms, expected) in [
        (NOW + WINDOW_MS, None),
        (NOW - WINDOW_MS, None),
        (NOW + WINDOW_MS + 1, Some(Refused::TooOld)),
        (NOW - WINDOW_MS - 1, Some(Refused::TooNew)),
    ] {
        assert_eq!(b.admit(&sealed(&a).0, now_ms).err(), expected, "{now_ms}");
    }
}

#[test]
fn an_envelope_is_for_one_worker() {
    let a = gate("a:1", &["k"]);
    for (id, expected) in [
        ("b:1", Ok(Addressed::Here)),
        ("b:2", Ok(Addressed::OtherRun)),
        ("c:1", Err(Refused::OtherReceiver)),
        ("a:1", Err(Refused::OtherReceiver)),
    ] {
        let admitted = gate(id, &["k"]).admit(&sealed(&a).0, NOW);
        assert_eq!(admitted.map(|a| a.addressed), expected, "{id}");
    }
}

#[test]
fn keys_can_be_changed_while_the_fleet_works() {
    let steps: &[&[&str]] = &[&["old"], &["old", "new"], &["new", "old"], &["new"]];
    for pair in steps.windows(2) {
        for (asking, asked) in [(pair[0], pair[1]), (pair[1], pair[0])] {
            let (a, b) = (gate("a:1", asking), gate("b:1", asked));
            let (envelope, mine) = sealed(&a);
            let theirs = b.admit(&envelope, NOW).unwrap().exchange;
            // The reply is signed with the key of the request, whichever comes first at the other side.
            let end = crate::fleet::FrameEncoder::new(theirs).end();
            assert_eq!(crate::fleet::FrameEncoder::new(mine).end(), end);
        }
    }
    let refused = gate("b:1", &["new"]).admit(&sealed(&gate("a:1", &["old"])).0, NOW);
    assert_eq!(refused.unwrap_err(), Refused::NotAuthentic);
}

#[test]
fn what_does_not_fit_is_not_sent() {
    let a = gate("a:1", &["k"]);
    let seal = |headers: HeaderMap| {
        let asked = Forward {
            headers,
            ..forward()
        };
        a.seal(&worker("b:1"), &asked, NOW)
            .map(|sealed| sealed.front)
    };
    let long = HeaderValue::from_str(&"x".repeat(ENVELOPE_BYTES_MAX)).unwrap();
    let one_long = HeaderMap::from_iter([(http::header::ACCEPT, long)]);
    assert_eq!(seal(one_long), Err(SealError::TooLarge));
    let mut many = HeaderMap::new();
    for _ in 0..128 {
        many.append("a", HeaderValue::from_static("b"));
    }
    let b = gate("b:1", &["k"]);
    let admitted = b.admit(&seal(many.clone()).unwrap()[4..], NOW).unwrap();
    assert_eq!(admitted.forward.headers, many);
    many.append("a", HeaderValue::from_static("b"));
    assert_eq!(seal(many), Err(SealError::TooLarge));
}

#[test]
fn nothing_shows_a_secret() {
    let shown = format!("{:?} {:?}", forward(), gate("a:1", &["k"]));
    for secret in ["0123", "example.org", "{}", "tw"] {
        assert!(!shown.contains(secret), "{shown}");
    }
}
