//! Reads replies of Redis (RESP2 and RESP3) from the bytes of a connection.
//!
//! Invariants: bytes are looked at once while a reply arrives, however many reads that takes; a reply is the value that
//! the client library would read from the same bytes. What the module's commands do not reply with, and errors, the
//! library reads. A reply beyond [`REPLY_BYTES_MAX`] or [`REPLY_VALUES_MAX`] is refused before it is held whole.

use std::io;

use redis::Value;

/// Free space for one read, in bytes.
const READ_BYTES: usize = 16 * 1024;
/// Size of the buffer above which it is not kept, in bytes.
const BUFFER_BYTES_KEPT: usize = 64 * 1024;
/// Longest reply, in bytes. A page of a thousand sessions has one or two million.
const REPLY_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Most values in one reply, nested ones included: each takes many times its bytes.
const REPLY_VALUES_MAX: usize = 1024 * 1024;
/// Deepest nesting that is read here.
const DEPTH_MAX: usize = 8;

/// The bytes received, and how far they were read.
#[derive(Debug, Default)]
pub(super) struct ReplyReader {
    buffer: Vec<u8>,
    /// Where the reply begins that arrives.
    begin: usize,
    /// Its part that was looked at ends here.
    scanned: usize,
    /// Values of it that are still to come; none before its first.
    values: usize,
    /// Values of it that were announced.
    announced: usize,
}

impl ReplyReader {
    /// The buffer to read into, with free space.
    pub(super) fn buffer(&mut self) -> &mut Vec<u8> {
        if self.begin > 0 {
            self.buffer.drain(..self.begin);
            self.scanned -= self.begin;
            self.begin = 0;
            self.buffer.shrink_to(BUFFER_BYTES_KEPT);
        }
        // Grows with a long reply, so that it is not moved for every read.
        self.buffer.reserve(READ_BYTES);
        &mut self.buffer
    }

    /// The next reply, if it is there as a whole. Pushed messages, which answer no command, are skipped.
    ///
    /// # Errors
    /// The bytes are no reply, or one that is too large.
    pub(super) fn next_reply(&mut self) -> io::Result<Option<Value>> {
        while self.scan()? {
            let reply = self.buffer.get(self.begin..self.scanned);
            let reply = reply.unwrap_or_default();
            self.begin = self.scanned;
            if !reply.starts_with(b">") {
                return parse(reply).map(Some);
            }
        }
        Ok(None)
    }

    /// Looks for the end of the reply. Returns whether it is there.
    fn scan(&mut self) -> io::Result<bool> {
        if self.values == 0 {
            self.values = 1;
            self.announced = 1;
        }
        while self.values > 0 {
            let read = self.scanned - self.begin;
            let mut rest = self.buffer.get(self.scanned..).unwrap_or_default();
            let Some((kind, argument)) = take_line(&mut rest) else {
                check_bytes(read.saturating_add(rest.len()))?;
                return Ok(false);
            };
            let count = |each: usize| {
                let count = length(argument).ok_or_else(malformed)?.unwrap_or(0);
                count.checked_mul(each).ok_or_else(malformed)
            };
            let inner = match kind {
                b'$' | b'=' | b'!' => {
                    let length = length(argument).ok_or_else(malformed)?;
                    check_bytes(read.saturating_add(length.unwrap_or(0)))?;
                    if let Some(length) = length
                        && take_text(&mut rest, length)?.is_none()
                    {
                        return Ok(false);
                    }
                    0
                }
                b'*' | b'~' | b'>' => count(1)?,
                b'%' => count(2)?,
                // Attributes come before the value that they describe.
                b'|' => count(2)?.saturating_add(1),
                b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(' => 0,
                _ => return Err(malformed()),
            };
            self.scanned = self.buffer.len() - rest.len();
            check_bytes(self.scanned - self.begin)?;
            self.announced = self.announced.saturating_add(inner);
            if self.announced > REPLY_VALUES_MAX {
                let problem = format!("a reply of redis has more than {REPLY_VALUES_MAX} values");
                return Err(invalid(problem));
            }
            self.values = (self.values - 1).checked_add(inner).ok_or_else(malformed)?;
        }
        Ok(true)
    }
}

/// Whether a reply may be as long, as far as it is known.
fn check_bytes(bytes: usize) -> io::Result<()> {
    if bytes <= REPLY_BYTES_MAX {
        return Ok(());
    }
    let problem = format!("a reply of redis is too large: {bytes} bytes (limit {REPLY_BYTES_MAX})");
    Err(invalid(problem))
}

fn malformed() -> io::Error {
    invalid("a reply of redis is malformed".to_owned())
}

fn invalid(problem: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, problem)
}

fn parse(reply: &[u8]) -> io::Result<Value> {
    let known = value(&mut { reply }, DEPTH_MAX);
    known.map_or_else(
        || redis::parse_redis_value(reply).map_err(io::Error::other),
        Ok,
    )
}

/// Reads one value; none if the library has to.
fn value(input: &mut &[u8], depth: usize) -> Option<Value> {
    let (kind, argument) = take_line(input)?;
    let depth = depth.checked_sub(1)?;
    Some(match kind {
        b'$' => match length(argument)? {
            Some(length) => Value::BulkString(take_text(input, length).ok()??.to_vec()),
            None => Value::Nil,
        },
        b':' => Value::Int(std::str::from_utf8(argument).ok()?.parse().ok()?),
        b'+' if argument == b"OK" => Value::Okay,
        b'*' => match length(argument)? {
            Some(length) => Value::Array(values(input, length, |input| value(input, depth))?),
            None => Value::Nil,
        },
        b'%' => {
            let pair = |input: &mut &[u8]| Some((value(input, depth)?, value(input, depth)?));
            Value::Map(values(input, length(argument)??, pair)?)
        }
        b'_' if argument.is_empty() => Value::Nil,
        b'#' if matches!(argument, b"t" | b"f") => Value::Boolean(argument == b"t"),
        _ => return None,
    })
}

fn values<T>(
    input: &mut &[u8],
    length: usize,
    mut read: impl FnMut(&mut &[u8]) -> Option<T>,
) -> Option<Vec<T>> {
    // The whole reply is there, and a value has at least three bytes.
    let mut values = Vec::with_capacity(length.min(input.len()));
    for _ in 0..length {
        values.push(read(input)?);
    }
    Some(values)
}

/// Takes a line with its end: its first byte, 0 if it has none, and the rest. None if the line is not there as a whole.
fn take_line<'a>(input: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    // Most lines have two or three bytes: a search by words would not pay.
    let end = input.windows(2).position(|end| end == b"\r\n")?;
    let (line, rest) = input.split_at_checked(end)?;
    *input = rest.get(2..)?;
    let (kind, argument) = line.split_first().unwrap_or((&0, line));
    Some((*kind, argument))
}

/// Takes a text of this length with its end. None if it is not there as a whole.
fn take_text<'a>(input: &mut &'a [u8], length: usize) -> io::Result<Option<&'a [u8]>> {
    let text = input.split_at_checked(length);
    let Some((text, (end, rest))) =
        text.and_then(|(text, rest)| Some((text, rest.split_at_checked(2)?)))
    else {
        return Ok(None);
    };
    if end != b"\r\n" {
        return Err(malformed());
    }
    *input = rest;
    Ok(Some(text))
}

/// A length: none if it is no number, and none in it for -1, which says that there is nothing.
#[allow(clippy::option_option, reason = "no length, and a length of nothing")]
fn length(digits: &[u8]) -> Option<Option<usize>> {
    if digits == b"-1" {
        return Some(None);
    }
    if digits.is_empty() {
        return None;
    }
    let mut length = 0_usize;
    for digit in digits {
        let digit = digit.checked_sub(b'0').filter(|digit| *digit <= 9)?;
        length = length.checked_mul(10)?.checked_add(usize::from(digit))?;
    }
    Some(Some(length))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    const REPLIES: [&[u8]; 15] = [
        b"+OK\r\n",
        b"+PONG\r\n",
        b":-7\r\n",
        b"$5\r\na\r\nbc\r\n",
        b"$0\r\n\r\n",
        b"$-1\r\n",
        b"*-1\r\n",
        b"*0\r\n",
        b"*3\r\n$5\r\nstate\r\n*2\r\n:1\r\n$-1\r\n+bound\r\n",
        b"%2\r\n$1\r\na\r\n#t\r\n$1\r\nb\r\n_\r\n",
        b"-NOSESSION no such session\r\n",
        b"+two\nlines\r\n",
        b"*2\r\n+OK\r\n-ERR inside\r\n",
        b"=7\r\ntxt:abc\r\n",
        b"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n",
    ];

    fn feed(reader: &mut ReplyReader, bytes: &[u8]) -> Vec<Value> {
        reader.buffer().extend_from_slice(bytes);
        std::iter::from_fn(|| reader.next_reply().unwrap()).collect()
    }

    #[test]
    fn it_reads_what_the_library_reads_however_the_bytes_arrive() {
        let expected: Vec<Value> = REPLIES
            .iter()
            .map(|reply| redis::parse_redis_value(reply).unwrap())
            .collect();
        let bytes = REPLIES.concat();
        for size in [1, 2, 3, 7, 64, bytes.len()] {
            let mut reader = ReplyReader::default();
            let read: Vec<Value> = bytes
                .chunks(size)
                .flat_map(|chunk| feed(&mut reader, chunk))
                .collect();
            assert_eq!(read, expected, "in pieces of {size} bytes");
        }
    }

    #[test]
    fn a_pushed_message_is_nobodys_reply() {
        let bytes = b">2\r\n+invalidate\r\n*1\r\n$1\r\na\r\n:1\r\n";
        assert_eq!(feed(&mut ReplyReader::default(), bytes), [Value::Int(1)]);
    }

    #[test]
    fn bytes_that_are_no_reply_are_refused() {
        for bytes in [
            &b"HTTP/1.1 400 Bad Request\r\n"[..],
            b"$x\r\n",
            b"*99999999999999999999\r\n",
            b"%18446744073709551615\r\n",
            b"$-2\r\n",
            b"$1\r\nab\r\n",
            b"\r\n",
            b"*1\r\n\r\n",
            b"#x\r\n",
        ] {
            let mut reader = ReplyReader::default();
            reader.buffer().extend_from_slice(bytes);
            assert!(
                reader.next_reply().is_err(),
                "{}",
                String::from_utf8_lossy(bytes)
            );
        }
    }

    #[test]
    fn a_reply_beyond_its_limits_is_refused_before_it_is_there() {
        let text = format!("${}\r\n", REPLY_BYTES_MAX + 1);
        let texts = format!("*2\r\n$3\r\nabc\r\n${REPLY_BYTES_MAX}\r\n");
        let values = format!("*{}\r\n", REPLY_VALUES_MAX + 1);
        let inner = format!("*2\r\n*{REPLY_VALUES_MAX}\r\n");
        let line = format!("+{}", "a".repeat(REPLY_BYTES_MAX));
        for bytes in [text, texts, values, inner, line] {
            let mut reader = ReplyReader::default();
            reader.buffer().extend_from_slice(bytes.as_bytes());
            let refused = reader.next_reply().unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidData, "{refused}");
            assert!(
                refused.to_string().contains("limit") || refused.to_string().contains("values")
            );
        }
    }

    #[test]
    fn a_long_reply_leaves_no_large_buffer() {
        let mut reader = ReplyReader::default();
        let text = vec![b'a'; 4 * BUFFER_BYTES_KEPT];
        let reply = [format!("${}\r\n", text.len()).as_bytes(), &text, b"\r\n"].concat();
        assert_eq!(feed(&mut reader, &reply), [Value::BulkString(text)]);
        assert!(reader.buffer().capacity() <= BUFFER_BYTES_KEPT + READ_BYTES);
    }
}
