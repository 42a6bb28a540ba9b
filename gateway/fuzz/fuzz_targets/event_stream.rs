//! A stream of server-sent events. The first byte is how many bytes arrive at once, the rest is the stream.
//!
//! The events are the same however the stream is cut, they are those that the WHATWG HTML standard (9.2.6) has for the
//! whole stream, and what the gateway writes of an event is read as that event again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mooring_protocol::{Event, EventParser, EventTooLong};

/// Long enough for most inputs, and short enough that some events are longer.
const EVENT_BYTES_MAX: usize = 1024;

fuzz_target!(|input: &[u8]| {
    let Some((piece_bytes, stream)) = input.split_first() else {
        return;
    };
    let cut = read(stream, usize::from(*piece_bytes).max(1));
    let whole = read(stream, stream.len().max(1));
    assert_eq!(cut, whole);
    let events: Option<Vec<Event>> = whole.into_iter().map(Result::ok).collect();
    let Some(events) = events else {
        return;
    };
    let expected = by_the_standard(stream);
    let message = |event: &Event| Some((event.event.clone(), event.data.as_ref()?.to_vec()));
    assert_eq!(
        events.iter().filter_map(message).collect::<Vec<_>>(),
        expected
    );
    for event in events {
        // What is no UTF-8 is longer as it is written.
        let written = read_up_to(8 * EVENT_BYTES_MAX, &event.encode(), usize::MAX);
        assert_eq!(written, [Ok(event)]);
    }
});

fn read(stream: &[u8], piece_bytes: usize) -> Vec<Result<Event, EventTooLong>> {
    read_up_to(EVENT_BYTES_MAX, stream, piece_bytes)
}

fn read_up_to(
    event_bytes_max: usize,
    stream: &[u8],
    piece_bytes: usize,
) -> Vec<Result<Event, EventTooLong>> {
    let mut parser = EventParser::new(event_bytes_max);
    let mut events = Vec::new();
    for piece in stream.chunks(piece_bytes) {
        parser.push(piece, |event| events.push(event));
    }
    events
}

/// The type and data of each event that has data.
fn by_the_standard(stream: &[u8]) -> Vec<(Option<Box<str>>, Vec<u8>)> {
    let stream = stream.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(stream);
    let (mut events, mut event, mut data) = (Vec::new(), None, None::<Vec<u8>>);
    for line in lines(stream) {
        if line.is_empty() {
            let event = event.take();
            events.extend(data.take().map(|data| (event, data)));
            continue;
        }
        let colon = line.iter().position(|byte| *byte == b':');
        let (field, value) = line.split_at(colon.unwrap_or(line.len()));
        let value = value.strip_prefix(b":").unwrap_or(value);
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"event" => event = Some(String::from_utf8_lossy(value).into()),
            b"data" => match &mut data {
                Some(data) => {
                    data.push(b'\n');
                    data.extend_from_slice(value);
                }
                None => data = Some(value.to_vec()),
            },
            _ => {}
        }
    }
    events
}

/// The lines that have ended.
fn lines(stream: &[u8]) -> Vec<&[u8]> {
    let (mut lines, mut rest) = (Vec::new(), stream);
    while let Some(end) = rest.iter().position(|byte| matches!(byte, b'\r' | b'\n')) {
        let (line, after) = rest.split_at(end);
        lines.push(line);
        rest = after.strip_prefix(b"\r\n").unwrap_or(&after[1..]);
    }
    lines
}
