//! Checks the line ends of request heads.
//!
//! The HTTP parser accepts a bare line feed as the end of a line, as RFC 9112 allows (2.2). A proxy in front may not,
//! and would then see a different request than the gateway. Invariant: every line of an accepted head ends with CR LF.
//! A head that is pipelined before the previous reply has ended is not checked.

use std::io;

use memchr::memchr;

/// The state of the check.
#[derive(Debug, Default)]
pub(super) struct HeadLines {
    /// Whether anything except line ends was received: the parser skips empty lines before a request.
    has_begun: bool,
    last_is_carriage_return: bool,
    /// Whether the current line is still empty.
    is_line_empty: bool,
    is_complete: bool,
}

impl HeadLines {
    /// Checks the next bytes.
    ///
    /// # Errors
    /// A line ends without CR.
    pub(super) fn check(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !self.is_complete && !bytes.is_empty() {
            let end = memchr(b'\n', bytes);
            let (line, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
            if line.iter().any(|byte| *byte != b'\r') {
                (self.has_begun, self.is_line_empty) = (true, false);
            }
            if let Some(last) = line.last() {
                self.last_is_carriage_return = *last == b'\r';
            }
            let Some((_line_feed, rest)) = rest.split_first() else {
                break;
            };
            if !self.last_is_carriage_return {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "a line of a request's head ends without CR",
                ));
            }
            self.is_complete = self.has_begun && self.is_line_empty;
            (self.is_line_empty, self.last_is_carriage_return) = (true, false);
            bytes = rest;
        }
        Ok(())
    }

    /// Whether a part of a head was received.
    pub(super) const fn is_partial(&self) -> bool {
        self.has_begun && !self.is_complete
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_a_head_ends_with_both_and_what_follows_the_head_may_be_anything() {
        for (bytes, is_good) in [
            (&b"GET / HTTP/1.1\r\nhost: a\r\n\r\nbody\n\n"[..], true),
            (b"\r\n\r\nGET / HTTP/1.1\r\nhost: a\r\n\r\n\n", true),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\n", true),
            (b"GET / HTTP/1.1\nhost: a\r\n\r\n", false),
            (b"GET / HTTP/1.1\r\nhost: a\n\r\n", false),
            (b"GET / HTTP/1.1\r\nhost: a\r\n\n", false),
            (b"\nGET / HTTP/1.1\r\n", false),
            (b"\r\n\r\nGET / HTTP/1.1\n", false),
        ] {
            let what = String::from_utf8_lossy(bytes);
            assert_eq!(
                HeadLines::default().check(bytes).is_ok(),
                is_good,
                "{what:?}"
            );
            // Again, byte by byte.
            let mut lines = HeadLines::default();
            let checked = bytes.chunks(1).try_for_each(|byte| lines.check(byte));
            assert_eq!(checked.is_ok(), is_good, "{what:?}");
        }
    }
}
