//! Whole events out of a stream's chunks, so that those of several streams can stand behind each other in one.
//!
//! Invariant: what comes out ends where an event ends. Memory is bounded by one event, of which the length is limited
//! where the stream is read.

use bytes::{Bytes, BytesMut};

/// What of a stream has not come to the end of its event. Lines end with one line feed, as the gateway's relay writes
/// them.
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    begun: BytesMut,
}

impl Blocks {
    /// Takes the next chunk and returns every event that ends in it.
    pub(crate) fn push(&mut self, chunk: Bytes) -> Bytes {
        if self.begun.is_empty() && chunk.ends_with(b"\n\n") {
            return chunk;
        }
        // The blank line may begin in what came before.
        let looked_at = self.begun.len().saturating_sub(1);
        self.begun.extend_from_slice(&chunk);
        let fresh = self.begun.get(looked_at..).unwrap_or_default();
        match memchr::memmem::rfind(fresh, b"\n\n") {
            Some(at) => {
                let end = looked_at.saturating_add(at).saturating_add(2);
                self.begun.split_to(end.min(self.begun.len())).freeze()
            }
            None => Bytes::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]
    use super::*;

    #[test]
    fn what_comes_out_ends_with_an_event_however_the_stream_is_cut() {
        let stream = "id: 1\ndata: a\n\n: keep-alive\n\ndata: b\ndata: c\n\ndata: never ends\n";
        let whole = "id: 1\ndata: a\n\n: keep-alive\n\ndata: b\ndata: c\n\n";
        for size in 1..=stream.len() {
            let mut blocks = Blocks::default();
            let mut out = String::new();
            for chunk in stream.as_bytes().chunks(size) {
                let piece = blocks.push(Bytes::copy_from_slice(chunk));
                assert!(piece.is_empty() || piece.ends_with(b"\n\n"));
                out.push_str(std::str::from_utf8(&piece).unwrap());
            }
            assert_eq!(out, whole, "chunks of {size}");
        }
    }

    #[test]
    fn a_chunk_of_whole_events_is_not_copied() {
        let chunk = Bytes::from_static(b"data: a\n\n");
        assert_eq!(
            Blocks::default().push(chunk.clone()).as_ptr(),
            chunk.as_ptr()
        );
    }
}
