//! Event ids of a group's members, marked so that a client's `Last-Event-ID` says whose stream is to be resumed.
//!
//! | event of | id that the client sees |
//! |---|---|
//! | a call's stream | `<server>/call/<the member's id>` |
//! | the stream of unrelated messages | `<server>/stream/<the member's id>` |
//!
//! A server's id has no slash. Invariant: nothing but ids changes, the stream's bytes go on as they arrive, line by
//! line, and any worker can read the mark.

use bytes::Bytes;

/// Which stream of a member an event was on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// The answer to one request.
    Call,
    /// What belongs to no request; the group has one such stream for all members.
    Unrelated,
}

impl Source {
    const fn word(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Unrelated => "stream",
        }
    }
}

/// An event id that a group gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Resumption<'a> {
    /// The member.
    pub(crate) server: &'a str,
    /// Which stream of it.
    pub(crate) source: Source,
    /// The member's own id.
    pub(crate) id: &'a str,
}

impl<'a> Resumption<'a> {
    /// Reads the mark; none for an id that no group gave.
    pub(crate) fn parse(text: &'a str) -> Option<Self> {
        let (server, rest) = text.split_once('/')?;
        let (word, id) = rest.split_once('/')?;
        let source = [Source::Call, Source::Unrelated]
            .into_iter()
            .find(|source| source.word() == word)?;
        (!id.is_empty()).then_some(Self { server, source, id })
    }
}

/// Marks the ids of one stream.
#[derive(Debug)]
pub(crate) struct EventMarker {
    mark: Box<[u8]>,
    /// A line whose end has not arrived.
    partial: Vec<u8>,
}

impl EventMarker {
    /// For a stream of this member.
    pub(crate) fn new(server: &str, source: Source) -> Self {
        let mark = format!("{server}/{}/", source.word());
        Self {
            mark: mark.into_bytes().into(),
            partial: Vec::new(),
        }
    }

    /// Takes the next chunk of the stream and returns the lines that end in it. The gateway's relay bounds a line and
    /// ends it with a line feed.
    pub(crate) fn push(&mut self, chunk: &Bytes) -> Bytes {
        let end = memchr::memrchr(b'\n', chunk).map_or(0, |at| at.saturating_add(1));
        let (whole, rest) = chunk.split_at_checked(end).unwrap_or((chunk, &[]));
        if self.partial.is_empty() && rest.is_empty() && !has_id(whole) {
            return chunk.clone();
        }
        let mut lines = std::mem::take(&mut self.partial);
        lines.extend_from_slice(whole);
        if whole.is_empty() {
            lines.extend_from_slice(rest);
            self.partial = lines;
            return Bytes::new();
        }
        self.partial = rest.to_vec();
        self.marked(&lines)
    }

    fn marked(&self, lines: &[u8]) -> Bytes {
        let mut out = Vec::with_capacity(lines.len().saturating_add(self.mark.len()));
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            match id_of(line) {
                Some(id) => {
                    out.extend_from_slice(b"id: ");
                    out.extend_from_slice(&self.mark);
                    out.extend_from_slice(id);
                }
                None => out.extend_from_slice(line),
            }
        }
        Bytes::from(out)
    }
}

fn has_id(lines: &[u8]) -> bool {
    lines
        .split_inclusive(|byte| *byte == b'\n')
        .any(|line| id_of(line).is_some())
}

/// The id that a line sets, with the line's end. An empty one forgets the id, which is right for every stream.
fn id_of(line: &[u8]) -> Option<&[u8]> {
    let value = line.strip_prefix(b"id:")?;
    let value = value.strip_prefix(b" ").unwrap_or(value);
    (value != b"\n").then_some(value)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]
    use super::*;

    const STREAM: &str = concat!(
        "id: 7_1\ndata:\n\n",
        ": id: no\n",
        "event: message\nid:8\ndata: id: not this\n\n",
        "id:\ndata: {\"id\":1}\n\n",
        "id: \nidx: 3\nretry: 5\ndata: x\n\n",
    );
    const MARKED: &str = concat!(
        "id: tools/call/7_1\ndata:\n\n",
        ": id: no\n",
        "event: message\nid: tools/call/8\ndata: id: not this\n\n",
        "id:\ndata: {\"id\":1}\n\n",
        "id: \nidx: 3\nretry: 5\ndata: x\n\n",
    );

    #[test]
    fn only_ids_are_marked_however_the_stream_is_cut() {
        for size in 1..=STREAM.len() {
            let mut marker = EventMarker::new("tools", Source::Call);
            let mut out = Vec::new();
            for chunk in STREAM.as_bytes().chunks(size) {
                out.extend_from_slice(&marker.push(&Bytes::copy_from_slice(chunk)));
            }
            assert_eq!(String::from_utf8(out).unwrap(), MARKED, "chunks of {size}");
        }
    }

    #[test]
    fn a_chunk_without_an_id_is_not_copied() {
        let mut marker = EventMarker::new("tools", Source::Call);
        let chunk = Bytes::from_static(b"data: {}\n\n");
        assert_eq!(marker.push(&chunk).as_ptr(), chunk.as_ptr());
    }

    #[test]
    fn a_mark_is_read_back() {
        let read = |text: &str| {
            Resumption::parse(text)
                .map(|found| format!("{} {:?} {}", found.server, found.source, found.id))
        };
        assert_eq!(read("a.b-c/call/7_1").unwrap(), "a.b-c Call 7_1");
        assert_eq!(read("a/stream/x/y/z").unwrap(), "a Unrelated x/y/z");
        for foreign in ["", "7", "a/7", "a/other/7", "a/call/", "a/call"] {
            assert_eq!(read(foreign), None, "{foreign}");
        }
    }
}
