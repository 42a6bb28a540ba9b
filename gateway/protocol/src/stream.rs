//! Restores the client's id in a JSON response while it arrives, once it is known to answer the client's request.
//!
//! A reply with content type `application/json` may be large and slow, and its `id` may be first or last. The rewriter
//! parses just enough to find the top-level keys. It withholds what arrives before `id`, compares the id with the
//! request's, replaces it, and forwards every other byte. Invariants: no byte of a reply to another request is released;
//! a reply without an error is one object with one `id` and a `result` or an `error`; the output does not depend on the
//! chunks and equals [`super::rewrite_down`] of the whole body.

use std::collections::VecDeque;

use bytes::Bytes;
use memchr::memchr2;
use smallvec::SmallVec;
use thiserror::Error;

use super::ids::{PendingRequest, RequestOrigin, WIRE_ID_BYTES_MAX};

/// The longest spelling of a key that matters: six escapes.
const KEY_BYTES_MAX: usize = r"\u0072\u0065\u0073\u0075\u006c\u0074".len();

/// Why a body is not the reply to its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum StreamError {
    /// The `id` exceeds [`WIRE_ID_BYTES_MAX`], so it is not one that a gateway has sent.
    #[error("the id of the response is longer than {WIRE_ID_BYTES_MAX} bytes")]
    IdTooLong,
    /// It has the id of another request.
    #[error("the response has the id of another request")]
    OtherRequest,
    /// It has no id, or null.
    #[error("the response has no id")]
    NoId,
    /// A key of the response occurs twice, and parsers differ in which they read.
    #[error("the response has the key `{0}` twice")]
    RepeatedKey(&'static str),
    /// It is not an object with `result` or `error`.
    #[error("the body is not a JSON-RPC response")]
    NotAResponse,
    /// More than the limit arrived before the id.
    #[error("the response has more than {0} bytes before its id")]
    TooLong(usize),
}

/// A top-level key of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TopKey {
    Id,
    Result,
    Error,
    Other,
}

/// The scanner's position in the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum JsonPosition {
    /// Before the object.
    Start,
    /// In the object, where a key, a comma or the end may follow.
    Between,
    /// In a key.
    Key,
    /// After a key.
    Colon(TopKey),
    /// Before the value of a key.
    Value(TopKey),
    /// In a number or literal.
    Scalar,
    /// In a string.
    Text,
    /// In an object or array.
    Nested,
    /// In the id.
    IdText,
    /// Behind the object.
    End,
}

/// Which keys have occurred.
#[derive(Debug, Default)]
struct SeenKeys {
    id: bool,
    result: bool,
    error: bool,
}

/// Rewrites one response, chunk by chunk.
#[derive(Debug)]
pub struct StreamRewriter {
    request: PendingRequest,
    /// Most bytes that are withheld before the id.
    withheld_bytes_max: usize,
    position: JsonPosition,
    /// Depth of nesting in the current value.
    depth: usize,
    /// Whether the next character of a string is escaped.
    escaped: bool,
    /// The key or id that is being read. Those of a call are short.
    held: SmallVec<[u8; 64]>,
    seen: SeenKeys,
    /// Rewritten chunks. They are withheld until `is_verified`.
    out: VecDeque<Bytes>,
    out_bytes: usize,
    /// Whether the id was the request's.
    is_verified: bool,
}

/// One chunk on its way.
struct ChunkRewrite {
    /// Up to here the chunk is in `out` or was dropped.
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
    /// A rewriter for the reply to this request, which withholds at most `withheld_bytes_max` bytes.
    #[must_use]
    pub fn new(request: PendingRequest, withheld_bytes_max: usize) -> Self {
        Self {
            request,
            withheld_bytes_max,
            position: JsonPosition::Start,
            depth: 0,
            escaped: false,
            held: SmallVec::new(),
            seen: SeenKeys::default(),
            out: VecDeque::new(),
            out_bytes: 0,
            is_verified: false,
        }
    }

    /// Rewrites a whole body.
    ///
    /// # Errors
    /// [`StreamError`]: the body is not the reply to the request.
    pub fn rewrite(body: Bytes, request: PendingRequest) -> Result<Bytes, StreamError> {
        let mut rewriter = Self::new(request, usize::MAX);
        let rewritten = rewriter.rewrite_chunk(body)?;
        rewriter.finish()?;
        Ok(rewritten)
    }

    /// Takes the next chunk of the body.
    ///
    /// # Errors
    /// [`StreamError`]: the body is not the reply to the request. Nothing more is released.
    pub fn push(&mut self, chunk: Bytes) -> Result<(), StreamError> {
        let rewritten = self.rewrite_chunk(chunk);
        let rewritten = rewritten.inspect_err(|_| self.out.clear())?;
        if !rewritten.is_empty() {
            self.out_bytes = self.out_bytes.saturating_add(rewritten.len());
            self.out.push_back(rewritten);
        }
        if !self.is_verified && self.out_bytes > self.withheld_bytes_max {
            self.out.clear();
            return Err(StreamError::TooLong(self.withheld_bytes_max));
        }
        Ok(())
    }

    fn rewrite_chunk(&mut self, chunk: Bytes) -> Result<Bytes, StreamError> {
        let mut work = ChunkRewrite {
            copied: 0,
            out: Vec::new(),
            changed: false,
        };
        let mut at = 0;
        while at < chunk.len() {
            at = self.step(&chunk, at, &mut work)?;
        }
        // What of the id is in this chunk is held.
        if self.position == JsonPosition::IdText {
            return Ok(work.out.into());
        }
        if !work.changed {
            return Ok(chunk);
        }
        work.copy_up_to(&chunk, chunk.len());
        Ok(work.out.into())
    }

    /// The next rewritten chunk; none before the id was compared.
    pub fn next_chunk(&mut self) -> Option<Bytes> {
        self.is_verified.then(|| self.out.pop_front()).flatten()
    }

    /// The length of what was received and rewritten so far.
    #[must_use]
    pub const fn received_bytes(&self) -> usize {
        self.out_bytes
    }

    /// Whether the id was compared, and is the request's.
    #[must_use]
    pub const fn is_verified(&self) -> bool {
        self.is_verified
    }

    /// Checks that the body, which has ended, is complete.
    ///
    /// # Errors
    /// [`StreamError`]: it is not the reply to the request.
    pub fn finish(&self) -> Result<(), StreamError> {
        if self.position != JsonPosition::End || !(self.seen.result || self.seen.error) {
            return Err(StreamError::NotAResponse);
        }
        match self.is_verified {
            true => Ok(()),
            false => Err(StreamError::NoId),
        }
    }

    /// Handles what is at `at`, and returns where the next step begins.
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
        match self.position {
            JsonPosition::Start => match byte {
                b'{' => self.position = JsonPosition::Between,
                // White space, or a byte order mark.
                _ if is_space || matches!(byte, 0xef | 0xbb | 0xbf) => {}
                _ => return Err(StreamError::NotAResponse),
            },
            JsonPosition::Between => match byte {
                b'"' => {
                    self.held.clear();
                    self.position = JsonPosition::Key;
                }
                b'}' => self.position = JsonPosition::End,
                _ if is_space || byte == b',' => {}
                _ => return Err(StreamError::NotAResponse),
            },
            JsonPosition::Key => return Ok(at + self.key(rest)?),
            JsonPosition::Colon(key) => match byte {
                b':' => self.position = JsonPosition::Value(key),
                _ if is_space => {}
                _ => return Err(StreamError::NotAResponse),
            },
            JsonPosition::Value(_) if is_space => {}
            JsonPosition::Value(TopKey::Id) => match byte {
                b'"' => {
                    work.copy_up_to(chunk, at);
                    self.held.clear();
                    self.held.push(byte);
                    self.position = JsonPosition::IdText;
                }
                b'n' => return Err(StreamError::NoId),
                // All ids that gateways send are strings.
                _ => return Err(StreamError::OtherRequest),
            },
            JsonPosition::Value(_) => match byte {
                b'"' => self.position = JsonPosition::Text,
                b'{' | b'[' => {
                    self.depth = 1;
                    self.position = JsonPosition::Nested;
                }
                _ => self.position = JsonPosition::Scalar,
            },
            JsonPosition::Scalar => match byte {
                b',' => self.position = JsonPosition::Between,
                b'}' => self.position = JsonPosition::End,
                _ => {}
            },
            JsonPosition::Text => return Ok(at + self.text(rest)),
            JsonPosition::Nested => return Ok(at + self.nested(rest)),
            JsonPosition::IdText => return self.id(rest, at, work),
            JsonPosition::End if is_space => {}
            JsonPosition::End => return Err(StreamError::NotAResponse),
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

    /// Reads on in a key; returns the length of what was read.
    fn key(&mut self, rest: &[u8]) -> Result<usize, StreamError> {
        let (len, ended) = self.string_part(rest);
        let part = rest.get(..len).unwrap_or_default();
        // The closing quote of a key that is too long is dropped, which makes it invalid JSON below.
        let room = (KEY_BYTES_MAX + 2).saturating_sub(self.held.len());
        self.held
            .extend_from_slice(part.get(..room).unwrap_or(part));
        if ended {
            let key = self.held_key();
            self.note_key(key)?;
            self.position = JsonPosition::Colon(key);
        }
        Ok(len)
    }

    /// The key that was read, without its first quote.
    fn held_key(&self) -> TopKey {
        let escaped;
        let key = if self.held.contains(&b'\\') {
            let quoted = [b"\"", self.held.as_slice()].concat();
            escaped = serde_json::from_slice::<String>(&quoted).unwrap_or_default();
            escaped.as_bytes()
        } else {
            self.held.strip_suffix(b"\"").unwrap_or_default()
        };
        match key {
            b"id" => TopKey::Id,
            b"result" => TopKey::Result,
            b"error" => TopKey::Error,
            _ => TopKey::Other,
        }
    }

    /// Notes that this key occurs.
    fn note_key(&mut self, key: TopKey) -> Result<(), StreamError> {
        let (seen, name) = match key {
            TopKey::Id => (&mut self.seen.id, "id"),
            TopKey::Result => (&mut self.seen.result, "result"),
            TopKey::Error => (&mut self.seen.error, "error"),
            TopKey::Other => return Ok(()),
        };
        match std::mem::replace(seen, true) {
            true => Err(StreamError::RepeatedKey(name)),
            false => Ok(()),
        }
    }

    /// Reads on in a string value; returns the length of what was read.
    fn text(&mut self, rest: &[u8]) -> usize {
        let (len, ended) = self.string_part(rest);
        if ended {
            self.position = match self.depth {
                0 => JsonPosition::Between,
                _ => JsonPosition::Nested,
            };
        }
        len
    }

    /// Reads on in an object or array; returns the length of what was read.
    fn nested(&mut self, rest: &[u8]) -> usize {
        for (at, byte) in rest.iter().enumerate() {
            match byte {
                b'"' => {
                    self.position = JsonPosition::Text;
                    return at + 1;
                }
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    self.depth -= 1;
                    if self.depth == 0 {
                        self.position = JsonPosition::Between;
                        return at + 1;
                    }
                }
                _ => {}
            }
        }
        rest.len()
    }

    /// Continues to read the id. Once it is complete, it is compared and replaced by the client's own.
    fn id(
        &mut self,
        rest: &[u8],
        at: usize,
        work: &mut ChunkRewrite,
    ) -> Result<usize, StreamError> {
        let (len, ended) = self.string_part(rest);
        if self.held.len() + len > WIRE_ID_BYTES_MAX {
            return Err(StreamError::IdTooLong);
        }
        self.held
            .extend_from_slice(rest.get(..len).unwrap_or_default());
        work.copied = at + len;
        work.changed = true;
        if ended {
            let origin = std::str::from_utf8(&self.held).map(RequestOrigin::of_value);
            if !origin.is_ok_and(|origin| self.request.is_answered(&origin)) {
                return Err(StreamError::OtherRequest);
            }
            work.out.extend_from_slice(self.request.id_json.as_bytes());
            self.is_verified = true;
            self.position = JsonPosition::Between;
        }
        Ok(at + len)
    }
}
