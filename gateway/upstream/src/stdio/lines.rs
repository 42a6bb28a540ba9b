//! Splits a byte stream into lines.
//!
//! Invariant: at most the longest line and one read are buffered.

use bytes::{Buf, Bytes, BytesMut};

/// A buffer of bytes read, from which lines are taken.
#[derive(Debug)]
pub struct Lines {
    buffer: BytesMut,
    /// There is no newline before this offset.
    looked_at: usize,
    bytes_max: usize,
    long: LongLinePolicy,
    is_skipping: bool,
}

/// What to do with a line that exceeds the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LongLinePolicy {
    /// Return an error and no further lines.
    Refuse,
    /// Keep the beginning and skip the rest.
    Cut,
}

/// A line exceeded the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineTooLong;

impl Lines {
    /// Lines of at most `bytes_max` bytes, without the newline.
    pub fn new(bytes_max: usize, long: LongLinePolicy) -> Self {
        Self {
            buffer: BytesMut::new(),
            looked_at: 0,
            bytes_max,
            long,
            is_skipping: false,
        }
    }

    /// The buffer to read into.
    pub fn buffer(&mut self) -> &mut BytesMut {
        &mut self.buffer
    }

    /// The next complete line, without its newline; `None` if more has to be read.
    pub fn next_line(&mut self) -> Result<Option<Bytes>, LineTooLong> {
        loop {
            let unseen = self.buffer.get(self.looked_at..).unwrap_or_default();
            let newline = memchr::memchr(b'\n', unseen).map(|at| at.saturating_add(self.looked_at));
            let length = newline.unwrap_or(self.buffer.len());
            if self.is_skipping {
                self.buffer.advance(length);
                self.looked_at = 0;
                if newline.is_none() {
                    return Ok(None);
                }
                self.buffer.advance(1);
                self.is_skipping = false;
                continue;
            }
            if length > self.bytes_max {
                if self.long == LongLinePolicy::Refuse {
                    return Err(LineTooLong);
                }
                self.is_skipping = true;
                self.looked_at = 0;
                return Ok(Some(self.buffer.split_to(self.bytes_max).freeze()));
            }
            self.looked_at = length;
            if newline.is_none() {
                return Ok(None);
            }
            let line = self.buffer.split_to(length).freeze();
            self.buffer.advance(1);
            self.looked_at = 0;
            return Ok(Some(line));
        }
    }

    /// The bytes after the last newline, at the end of the stream.
    pub fn rest(&mut self) -> Option<Bytes> {
        let rest = self.buffer.split().freeze();
        (!rest.is_empty() && !self.is_skipping).then_some(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the lines for reads of each length.
    fn check(long: LongLinePolicy, text: &str, expected: &[&str], is_refused: bool) {
        for piece in 1..=text.len() {
            let mut lines = Lines::new(4, long);
            let mut found = Vec::new();
            let mut refused = false;
            'reading: for bytes in text.as_bytes().chunks(piece) {
                lines.buffer().extend_from_slice(bytes);
                loop {
                    match lines.next_line() {
                        Ok(Some(line)) => found.push(line),
                        Ok(None) => break,
                        Err(LineTooLong) => {
                            refused = true;
                            break 'reading;
                        }
                    }
                }
            }
            if !refused {
                found.extend(lines.rest());
            }
            assert_eq!(found, expected, "in pieces of {piece}");
            assert_eq!(refused, is_refused, "in pieces of {piece}");
        }
    }

    #[test]
    fn lines_are_complete_for_any_reads() {
        check(
            LongLinePolicy::Refuse,
            "ab\n\ncdef\ng",
            &["ab", "", "cdef", "g"],
            false,
        );
        check(LongLinePolicy::Refuse, "abcd", &["abcd"], false);
        check(LongLinePolicy::Refuse, "ab\n", &["ab"], false);
    }

    #[test]
    fn a_long_line_is_refused() {
        check(LongLinePolicy::Refuse, "ab\nabcde\nc\n", &["ab"], true);
        check(LongLinePolicy::Refuse, "abcdefghi", &[], true);
    }

    #[test]
    fn a_long_line_is_cut() {
        check(
            LongLinePolicy::Cut,
            "abcdefghij\nab\nabcd\nabcdefg",
            &["abcd", "ab", "abcd", "abcd"],
            false,
        );
    }
}
