//! Restores the client's id in a JSON response while it arrives.
//!
//! A reply with content type `application/json` may be large and slow, and its `id` may be first or last. The rewriter
//! parses just enough to find the top-level keys, replaces the value of `id`, and forwards every other byte at once.
//! Invariant: the output does not depend on the chunks and equals [`super::rewrite_down`] of the whole body; memory is
//! bounded by one id. After the id, chunks are forwarded without inspection.

use bytes::Bytes;
use memchr::memchr2;
use thiserror::Error;

use super::ids::{RequestOrigin, WIRE_ID_BYTES_MAX, decode};

/// The longest spelling of the key `id`, two escapes, without the quotes.
const ID_KEY_BYTES_MAX: usize = r"\u0069\u0064".len();

/// Why the rest of a body cannot be rewritten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum StreamError {
    /// The id is longer than [`WIRE_ID_BYTES_MAX`].
    #[error("the id of the response is longer than {WIRE_ID_BYTES_MAX} bytes")]
    IdTooLong,
}

/// The parser's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum JsonPosition {
    /// Before the opening brace.
    Start,
    /// Before a key, or after a value.
    Between,
    /// In a top-level key.
    Key,
    /// After a key; true for the key `id`.
    Colon(bool),
    /// Before a value; true for the value of `id`.
    Value(bool),
    /// In a number or a literal at the top level.
    Scalar,
    /// In a string, at any depth.
    Text,
    /// In an object or array that is a value.
    Nested,
    /// In the id, which is a string.
    IdText,
    /// In the id, which is a number or a literal.
    IdScalar,
    /// Done: the id was replaced, the object has ended, or the body is not an object.
    Done,
}

/// The rewriter of one body.
#[derive(Debug)]
pub struct StreamRewriter {
    place: JsonPosition,
    /// The number of open objects and arrays below the top level.
    depth: usize,
    /// Whether the last byte of a string was an escaping backslash.
    escaped: bool,
    /// The incomplete key or id.
    held: Vec<u8>,
    answered: Option<RequestOrigin<'static>>,
}

impl Default for StreamRewriter {
    fn default() -> Self {
        Self::new()
    }
}

/// The rewrite of one chunk.
struct ChunkRewrite {
    /// Everything before this offset was copied into `out`, or replaced.
    copied: usize,
    out: Vec<u8>,
    changed: bool,
}

impl ChunkRewrite {
    fn copy_up_to(&mut self, chunk: &[u8], at: usize) {
        if self.out.is_empty() {
            // A client's own id is shorter than its rewritten form, so the chunk's length suffices.
            self.out.reserve(chunk.len());
        }
        if let Some(part) = chunk.get(self.copied..at) {
            self.out.extend_from_slice(part);
        }
        self.copied = at;
        self.changed = true;
    }
}

impl StreamRewriter {
    /// A rewriter at the start of a body.
    #[must_use]
    pub fn new() -> Self {
        Self {
            place: JsonPosition::Start,
            depth: 0,
            escaped: false,
            held: Vec::new(),
            answered: None,
        }
    }

    /// Rewrites a whole body.
    ///
    /// # Errors
    /// [`StreamError::IdTooLong`].
    pub fn rewrite(body: Bytes) -> Result<Bytes, StreamError> {
        let mut rewriter = Self::new();
        let out = rewriter.push(body)?;
        let held = rewriter.finish();
        Ok(match held.is_empty() {
            true => out,
            false => [out, held].concat().into(),
        })
    }

    /// The origin of the answered request, once the id was read.
    #[must_use]
    pub fn answered(&self) -> Option<&RequestOrigin<'static>> {
        self.answered.as_ref()
    }

    /// Processes the next chunk and returns the output, which may be empty.
    ///
    /// # Errors
    /// [`StreamError::IdTooLong`]; the stream must then be cut.
    pub fn push(&mut self, chunk: Bytes) -> Result<Bytes, StreamError> {
        if self.place == JsonPosition::Done {
            return Ok(chunk);
        }
        let mut work = ChunkRewrite {
            copied: 0,
            out: Vec::new(),
            changed: false,
        };
        let mut at = 0;
        while at < chunk.len() && self.place != JsonPosition::Done {
            at = self.step(&chunk, at, &mut work)?;
        }
        let holding = matches!(self.place, JsonPosition::IdText | JsonPosition::IdScalar);
        if !work.changed && !holding {
            return Ok(chunk);
        }
        if holding {
            // `step` has copied everything before the id; the rest of the chunk is in `held`.
            return Ok(Bytes::from(work.out));
        }
        work.copy_up_to(&chunk, chunk.len());
        Ok(Bytes::from(work.out))
    }

    /// Ends the body and returns the bytes held back, if it was incomplete or not an object.
    #[must_use]
    pub fn finish(&mut self) -> Bytes {
        let holding = matches!(self.place, JsonPosition::IdText | JsonPosition::IdScalar);
        self.place = JsonPosition::Done;
        let held = std::mem::take(&mut self.held);
        if holding {
            Bytes::from(held)
        } else {
            Bytes::new()
        }
    }

    /// Consumes at least one byte from `at`, unless only the state changes; returns the next offset.
    fn step(
        &mut self,
        chunk: &[u8],
        at: usize,
        work: &mut ChunkRewrite,
    ) -> Result<usize, StreamError> {
        let rest = chunk.get(at..).unwrap_or_default();
        let Some(&byte) = rest.first() else {
            return Ok(at);
        };
        let is_space = matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        match self.place {
            JsonPosition::Start => match byte {
                b'{' => self.place = JsonPosition::Between,
                // White space, or a byte order mark.
                _ if is_space || matches!(byte, 0xef | 0xbb | 0xbf) => {}
                _ => self.place = JsonPosition::Done,
            },
            JsonPosition::Between => match byte {
                b'"' => {
                    self.held.clear();
                    self.place = JsonPosition::Key;
                }
                _ if is_space || byte == b',' => {}
                _ => self.place = JsonPosition::Done,
            },
            JsonPosition::Key => return Ok(at + self.key(rest)),
            JsonPosition::Colon(is_id) => match byte {
                b':' => self.place = JsonPosition::Value(is_id),
                _ if is_space => {}
                _ => self.place = JsonPosition::Done,
            },
            JsonPosition::Value(_) if is_space => {}
            JsonPosition::Value(true) if !matches!(byte, b'{' | b'[') => {
                work.copy_up_to(chunk, at);
                self.held.clear();
                self.place = JsonPosition::IdScalar;
                if byte == b'"' {
                    self.held.push(byte);
                    self.place = JsonPosition::IdText;
                    return Ok(at + 1);
                }
                return Ok(at);
            }
            JsonPosition::Value(_) => match byte {
                b'"' => self.place = JsonPosition::Text,
                b'{' | b'[' => {
                    self.depth = 1;
                    self.place = JsonPosition::Nested;
                }
                _ => self.place = JsonPosition::Scalar,
            },
            JsonPosition::Scalar => match byte {
                b',' => self.place = JsonPosition::Between,
                b'}' => self.place = JsonPosition::Done,
                _ => {}
            },
            JsonPosition::Text => return Ok(at + self.text(rest)),
            JsonPosition::Nested => return Ok(at + self.nested(rest)),
            JsonPosition::IdText => {
                let (len, ended) = self.string_part(rest);
                return self.hold(rest, at, len, ended, work);
            }
            JsonPosition::IdScalar => {
                let end = rest
                    .iter()
                    .position(|byte| matches!(byte, b',' | b'}' | b' ' | b'\t' | b'\n' | b'\r'));
                return self.hold(rest, at, end.unwrap_or(rest.len()), end.is_some(), work);
            }
            JsonPosition::Done => {}
        }
        Ok(at + 1)
    }

    /// How much of the input belongs to the current string, and whether the string ends there.
    fn string_part(&mut self, rest: &[u8]) -> (usize, bool) {
        let mut at = 0;
        while let Some(tail) = rest.get(at..).filter(|tail| !tail.is_empty()) {
            if self.escaped {
                self.escaped = false;
                at += 1;
                continue;
            }
            match memchr2(b'"', b'\\', tail) {
                None => return (rest.len(), false),
                Some(found) if tail.get(found) == Some(&b'"') => return (at + found + 1, true),
                Some(found) => {
                    self.escaped = true;
                    at += found + 1;
                }
            }
        }
        (rest.len(), false)
    }

    fn key(&mut self, rest: &[u8]) -> usize {
        let (len, ended) = self.string_part(rest);
        let part = rest.get(..len).unwrap_or_default();
        // The closing quote of a key that is too long is dropped, which makes it invalid JSON below.
        let room = (ID_KEY_BYTES_MAX + 2).saturating_sub(self.held.len());
        self.held
            .extend_from_slice(part.get(..room).unwrap_or(part));
        if ended {
            self.place = JsonPosition::Colon(self.held_key_is_id());
        }
        len
    }

    fn held_key_is_id(&self) -> bool {
        if self.held == b"id\"" {
            return true;
        }
        if !self.held.contains(&b'\\') {
            return false;
        }
        let quoted = [b"\"", self.held.as_slice()].concat();
        serde_json::from_slice::<String>(&quoted).is_ok_and(|key| key == "id")
    }

    fn text(&mut self, rest: &[u8]) -> usize {
        let (len, ended) = self.string_part(rest);
        if ended {
            self.place = match self.depth {
                0 => JsonPosition::Between,
                _ => JsonPosition::Nested,
            };
        }
        len
    }

    fn nested(&mut self, rest: &[u8]) -> usize {
        for (at, byte) in rest.iter().enumerate() {
            match byte {
                b'"' => {
                    self.place = JsonPosition::Text;
                    return at + 1;
                }
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    self.depth -= 1;
                    if self.depth == 0 {
                        self.place = JsonPosition::Between;
                        return at + 1;
                    }
                }
                _ => {}
            }
        }
        rest.len()
    }

    /// Buffers a part of the id; at its end, writes the client's own id instead.
    fn hold(
        &mut self,
        rest: &[u8],
        at: usize,
        len: usize,
        ended: bool,
        work: &mut ChunkRewrite,
    ) -> Result<usize, StreamError> {
        if self.held.len() + len > WIRE_ID_BYTES_MAX {
            return Err(StreamError::IdTooLong);
        }
        self.held
            .extend_from_slice(rest.get(..len).unwrap_or_default());
        work.copied = at + len;
        work.changed = true;
        if ended {
            self.place = JsonPosition::Done;
            let held = std::mem::take(&mut self.held);
            let answered = answered_by(&held);
            match &answered {
                RequestOrigin::Client { id, .. } => work.out.extend_from_slice(id.as_bytes()),
                _ => work.out.extend_from_slice(&held),
            }
            self.answered = Some(answered);
        }
        Ok(at + len)
    }
}

/// The origin named by the raw text of an id.
fn answered_by(raw: &[u8]) -> RequestOrigin<'static> {
    match std::str::from_utf8(raw) {
        Ok("null") => RequestOrigin::Nobody,
        Ok(raw) if decode(raw).is_some() => RequestOrigin::of_value(raw).into_owned(),
        _ => RequestOrigin::Foreign,
    }
}
