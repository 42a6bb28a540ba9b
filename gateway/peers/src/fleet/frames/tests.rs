//! Replies that arrive in pieces, and replies that somebody changed.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]
use http::HeaderValue;

use super::*;

fn exchange(request: u8) -> Exchange {
    Exchange::new(&MacKey::new(b"reply key"), &[request; TAG_BYTES])
}

fn head(outcome: Result<StatusCode, Verdict>) -> ReplyHead {
    let headers = HeaderMap::from_iter([(
        http::header::CONTENT_TYPE,
        HeaderValue::from_static("text/event-stream"),
    )]);
    ReplyHead {
        from: WorkerId::parse(b"b:1").unwrap(),
        outcome: outcome.map(|status| served(status, headers)),
    }
}

/// The frames of a reply of two events.
fn reply(request: u8) -> [Bytes; 4] {
    let mut encoder = FrameEncoder::new(exchange(request));
    [
        encoder.head(&head(Ok(StatusCode::ACCEPTED))).unwrap(),
        encoder.data(b"data: 1\n\n"),
        encoder.data(b"data: 2\n\n"),
        encoder.end(),
    ]
}

/// What a reader gets before the bytes end or an error comes, one word for each frame, and that error.
fn read(bytes: &[u8], piece_bytes: usize) -> (Vec<String>, Option<FrameError>) {
    let mut decoder = FrameDecoder::new(exchange(1));
    let mut words = Vec::new();
    for piece in bytes.chunks(piece_bytes) {
        decoder.push(piece);
        loop {
            words.push(match decoder.take_frame() {
                Ok(Some(Frame::Head(head))) => match head.outcome {
                    Ok(served) => format!("{} {:?}", served.status(), served.headers()),
                    Err(verdict) => verdict.as_str().to_owned(),
                },
                Ok(Some(Frame::Data(data))) => String::from_utf8(data.to_vec()).unwrap(),
                Ok(Some(Frame::Cut)) => "cut".to_owned(),
                Ok(Some(Frame::End)) => "end".to_owned(),
                Ok(None) => break,
                Err(error) => return (words, Some(error)),
            });
        }
    }
    assert_eq!(
        decoder.has_ended(),
        words
            .last()
            .is_some_and(|word| ["end", "cut", "not_here"].contains(&&**word))
    );
    (words, None)
}

fn whole() -> Vec<String> {
    [
        "202 Accepted {\"content-type\": \"text/event-stream\"}",
        "data: 1\n\n",
        "data: 2\n\n",
        "end",
    ]
    .map(str::to_owned)
    .to_vec()
}

#[test]
fn a_reply_is_read_however_it_arrives() {
    let bytes = reply(1).concat();
    for piece_bytes in 1..=bytes.len() {
        assert_eq!(read(&bytes, piece_bytes), (whole(), None), "{piece_bytes}");
    }
}

#[test]
fn no_bit_can_be_changed() {
    let bytes = reply(1).concat();
    for bit in 0..bytes.len() * 8 {
        let mut changed = bytes.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        let (words, _) = read(&changed, bytes.len());
        assert!(
            words.len() < 4 && whole().starts_with(&words),
            "bit {bit}: {words:?}"
        );
    }
}

#[test]
fn a_reply_that_is_cut_short_does_not_end() {
    let bytes = reply(1).concat();
    for length in 0..bytes.len() {
        let (words, error) = read(&bytes[..length], bytes.len());
        assert_eq!(error, None);
        assert!(
            words.len() < 4 && whole().starts_with(&words),
            "{length}: {words:?}"
        );
    }
}

#[test]
fn frames_have_one_order_and_one_request() {
    let [head, one, two, end] = &reply(1);
    let [other_head, other_one, _, other_end] = &reply(2);
    for (frames, read_before) in [
        (&[head, two, one, end][..], 1),
        (&[head, one, one, two, end], 2),
        (&[head, two, end], 1),
        (&[head, one, end], 2),
        (&[head, head, one, two, end], 1),
        (&[one, two, end], 0),
        (&[other_head, one, two, end], 0),
        (&[head, other_one, two, end], 1),
        (&[head, one, two, other_end], 3),
    ] {
        let bytes: Vec<u8> = frames.iter().flat_map(|frame| frame.to_vec()).collect();
        let expected = whole()[..read_before].to_vec();
        let (words, error) = read(&bytes, bytes.len());
        assert_eq!(
            (words, error),
            (expected, Some(FrameError::NotAuthentic)),
            "{read_before}"
        );
    }
    let after = [&reply(1).concat()[..], b"\0"].concat();
    assert_eq!(
        read(&after, after.len()),
        (whole(), Some(FrameError::AfterEnd))
    );
}

/// A worker of the fleet that errs: its frames are authentic.
#[test]
fn an_authentic_frame_in_the_wrong_place_is_refused() {
    let frame = |kinds: &[(Kind, &[u8])]| {
        let mut encoder = FrameEncoder::new(exchange(1));
        let mut frames = BytesMut::new();
        for (kind, payload) in kinds {
            encoder.append(&mut frames, *kind, payload);
        }
        let (_, error) = read(&frames, frames.len());
        error
    };
    let good = head(Ok(StatusCode::OK)).encode().unwrap();
    let declined = head(Err(Verdict::NotHere)).encode().unwrap();
    let malformed = Some(FrameError::Malformed);
    assert_eq!(frame(&[(Kind::Data, b"x")]), malformed);
    assert_eq!(frame(&[(Kind::End, b"")]), malformed);
    assert_eq!(frame(&[(Kind::Head, b"x")]), malformed);
    assert_eq!(
        frame(&[(Kind::Head, &good), (Kind::Head, &good)]),
        malformed
    );
    assert_eq!(frame(&[(Kind::Head, &good), (Kind::Data, b"")]), malformed);
    assert_eq!(frame(&[(Kind::Head, &good), (Kind::End, b"x")]), malformed);
    assert_eq!(
        frame(&[(Kind::Head, &declined), (Kind::End, b"")]),
        Some(FrameError::AfterEnd)
    );
    assert_eq!(frame(&[(Kind::Head, &good), (Kind::Cut, b"")]), None);
}

#[test]
fn every_verdict_is_read_back() {
    for verdict in Verdict::ALL {
        let mut decoder = FrameDecoder::new(exchange(1));
        let mut encoder = FrameEncoder::new(exchange(1));
        decoder.push(&encoder.head(&head(Err(verdict))).unwrap());
        match decoder.take_frame() {
            Ok(Some(Frame::Head(head))) => assert_eq!(head.outcome.unwrap_err(), verdict),
            other => panic!("{other:?}"),
        }
        assert!(decoder.has_ended());
    }
}

#[test]
fn a_large_piece_takes_several_frames_and_a_frame_has_a_limit() {
    let piece = vec![b'x'; PAYLOAD_BYTES_MAX * 2 + 1];
    let mut encoder = FrameEncoder::new(exchange(1));
    let bytes = [
        encoder.head(&head(Ok(StatusCode::OK))).unwrap(),
        encoder.data(&piece),
        encoder.data(b""),
        encoder.cut(),
    ]
    .concat();
    let (words, error) = read(&bytes, 1000);
    assert_eq!(error, None);
    assert_eq!(words.last().unwrap(), "cut");
    let sizes: Vec<_> = words[1..4].iter().map(String::len).collect();
    assert_eq!(sizes, [PAYLOAD_BYTES_MAX, PAYLOAD_BYTES_MAX, 1]);

    let too_large = u32::try_from(PAYLOAD_BYTES_MAX + 1).unwrap().to_be_bytes();
    let frame = [&too_large[..], &[Kind::Head as u8]].concat();
    assert_eq!(read(&frame, 5), (Vec::new(), Some(FrameError::TooLarge)));
    assert_eq!(read(&[0; 5], 5), (Vec::new(), Some(FrameError::Kind)));
    let mut long = head(Ok(StatusCode::OK));
    let value = HeaderValue::from_str(&"x".repeat(PAYLOAD_BYTES_MAX)).unwrap();
    let headers = HeaderMap::from_iter([(http::header::LINK, value)]);
    long.outcome = Ok(served(StatusCode::OK, headers));
    assert_eq!(
        FrameEncoder::new(exchange(1)).head(&long),
        Err(HeadTooLarge)
    );
}
