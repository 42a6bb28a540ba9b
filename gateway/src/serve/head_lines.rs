//! The line ends of a request's head.
//!
//! The parser takes a line feed alone for the end of a line, as RFC 9112 allows (2.2); a proxy in front may not, and would
//! then see another request than the gateway does. Invariant: every line of a head that passes here ends with CR and LF. A
//! head that a client sends before the reply to its request before has ended is not looked at.

use std::io;

/// How far a head has come.
#[derive(Debug, Default)]
pub(super) struct HeadLines {
    /// Whether anything but line ends has come: the parser skips empty lines before a request.
    has_begun: bool,
    last_is_carriage_return: bool,
    /// Whether nothing has come in the line so far.
    is_line_empty: bool,
    is_complete: bool,
}

impl HeadLines {
    /// Looks at what has come next.
    ///
    /// # Errors
    /// A line ends without CR.
    pub(super) fn check(&mut self, bytes: &[u8]) -> io::Result<()> {
        for &byte in bytes {
            if self.is_complete {
                break;
            }
            match byte {
                b'\n' if !self.last_is_carriage_return => {
                    return Err(io::Error::new(
                        io::ErrorKind::InvalidData,
                        "a line of a request's head ends without CR",
                    ));
                }
                b'\n' => {
                    self.is_complete = self.has_begun && self.is_line_empty;
                    self.is_line_empty = true;
                }
                b'\r' => {}
                _ => (self.has_begun, self.is_line_empty) = (true, false),
            }
            self.last_is_carriage_return = byte == b'\r';
        }
        Ok(())
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
            // The same, byte by byte.
            let mut lines = HeadLines::default();
            let checked = bytes.chunks(1).try_for_each(|byte| lines.check(byte));
            assert_eq!(checked.is_ok(), is_good, "{what:?}");
        }
    }
}
