//! Server-sent events, as the WHATWG HTML standard frames them, out of chunks of any size.

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// The `id` field.
    pub id: Option<String>,
    /// The `event` field; absent means `message`.
    pub name: Option<String>,
    /// The `data` lines, joined by newlines.
    pub data: String,
    /// The `retry` field, in milliseconds.
    pub retry_ms: Option<u64>,
}

/// Collects chunks and returns events.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    comments: usize,
}

impl Decoder {
    /// Adds what came over the wire.
    pub fn push(&mut self, chunk: &[u8]) {
        self.buffer.extend_from_slice(chunk);
    }

    /// How many comment lines were seen so far; servers send them to keep a stream alive.
    #[must_use]
    pub fn comments(&self) -> usize {
        self.comments
    }

    /// The next complete event. Blocks that contain only comments are skipped.
    pub fn next_event(&mut self) -> Option<Event> {
        loop {
            let end = block_end(&self.buffer)?;
            let block: Vec<u8> = self.buffer.drain(..end).collect();
            let block = String::from_utf8_lossy(&block).replace("\r\n", "\n");
            if let Some(event) = self.parse(&block) {
                return Some(event);
            }
        }
    }

    fn parse(&mut self, block: &str) -> Option<Event> {
        let mut event = Event::default();
        let mut data: Vec<&str> = Vec::new();
        let mut fields = 0;
        for line in block.lines().filter(|line| !line.is_empty()) {
            let (field, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            fields += 1;
            match field {
                "" => {
                    self.comments += 1;
                    fields -= 1;
                }
                "id" => event.id = Some(value.to_owned()),
                "event" => event.name = Some(value.to_owned()),
                "retry" => event.retry_ms = value.parse().ok(),
                "data" => data.push(value),
                _ => {}
            }
        }
        event.data = data.join("\n");
        (fields > 0).then_some(event)
    }
}

/// The offset after the first empty line.
fn block_end(buffer: &[u8]) -> Option<usize> {
    let newlines = buffer
        .windows(2)
        .position(|pair| pair == b"\n\n")
        .map(|at| at + 2);
    let returns = buffer
        .windows(4)
        .position(|four| four == b"\r\n\r\n")
        .map(|at| at + 4);
    match (newlines, returns) {
        (Some(newlines), Some(returns)) => Some(newlines.min(returns)),
        (newlines, returns) => newlines.or(returns),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test code")]

    use super::{Decoder, Event};

    fn check(stream: &str, expected: &[Event]) {
        for chunk in 1..=stream.len() {
            let mut decoder = Decoder::default();
            let mut events = Vec::new();
            for piece in stream.as_bytes().chunks(chunk) {
                decoder.push(piece);
                while let Some(event) = decoder.next_event() {
                    events.push(event);
                }
            }
            assert_eq!(events, expected, "in chunks of {chunk}");
        }
    }

    #[test]
    fn events_come_out_whole_whatever_the_chunks() {
        let message = |data: &str| Event {
            data: data.to_owned(),
            ..Event::default()
        };
        check("data: 1\n\ndata: 2\n\n", &[message("1"), message("2")]);
        check(
            "data: 1\r\n\r\ndata: 2\r\n\r\n",
            &[message("1"), message("2")],
        );
        check(": keep-alive\n\ndata: a\ndata: b\n\n", &[message("a\nb")]);
        check("data: unfinished\n", &[]);
        let priming = Event {
            id: Some("0/1".to_owned()),
            retry_ms: Some(200),
            ..Event::default()
        };
        check("id: 0/1\nretry: 200\ndata: \n\n", &[priming]);
    }
}
