//! The outcome of a response: a result, a tool's error or an error. Read while it arrives, from its keys alone.
//!
//! Invariant: only top-level keys and those right inside of `result` and `error` count, so no text of a tool looks like
//! an error.

use std::sync::LazyLock;

use memchr::memchr2;
use memchr::memmem::Finder;

/// The longest key or scalar that matters: `isError`, or a code.
const TEXT_BYTES_MAX: usize = 12;
/// Depth of the keys in `result` and `error`.
const INNER_DEPTH: usize = 2;

/// What a response says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseOutcome {
    /// A result.
    Result,
    /// The result of a tool that failed (`isError`).
    ToolError,
    /// An error, with its code if it has a valid one.
    Error(Option<i32>),
}

impl ResponseOutcome {
    /// That of a whole message; none if it is no response. Most results need no scan.
    #[must_use]
    pub fn of_message(text: &[u8]) -> Option<Self> {
        static IS_ERROR: LazyLock<Finder<'_>> = LazyLock::new(|| Finder::new(b"\"isError\""));
        static ERROR: LazyLock<Finder<'_>> = LazyLock::new(|| Finder::new(b"\"error\""));
        static RESULT: LazyLock<Finder<'_>> = LazyLock::new(|| Finder::new(b"\"result\""));
        static METHOD: LazyLock<Finder<'_>> = LazyLock::new(|| Finder::new(b"\"method\""));
        let has = |finder: &Finder<'_>| finder.find(text).is_some();
        if !has(&IS_ERROR) && !has(&ERROR) {
            if !has(&RESULT) {
                return None;
            }
            if !has(&METHOD) {
                return Some(Self::Result);
            }
        }
        let mut scanner = OutcomeScanner::default();
        scanner.push(text);
        scanner.outcome()
    }
}

/// Reads the outcome of one message, chunk by chunk.
#[derive(Debug, Default)]
pub struct OutcomeScanner {
    depth: usize,
    /// Whether the containers down to [`INNER_DEPTH`] are objects, the outermost first.
    objects: [bool; INNER_DEPTH],
    /// Whether the next string is a key.
    expects_key: bool,
    string: StringPosition,
    /// The key or scalar that is being read, as far as it matters.
    text: Vec<u8>,
    outer: OuterKey,
    inner: InnerKey,
    outcome: Option<ResponseOutcome>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum StringPosition {
    #[default]
    Outside,
    Inside,
    Escaped,
}

/// The top-level key whose value is being read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum OuterKey {
    Result,
    Error,
    #[default]
    Other,
}

/// The key right inside of that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum InnerKey {
    IsError,
    Code,
    #[default]
    Other,
}

impl OutcomeScanner {
    /// The outcome as far as it is known; none if the message is no response.
    #[must_use]
    pub const fn outcome(&self) -> Option<ResponseOutcome> {
        self.outcome
    }

    /// Reads the next chunk.
    pub fn push(&mut self, chunk: &[u8]) {
        let mut rest = chunk;
        while let Some((&byte, after)) = rest.split_first() {
            rest = after;
            match self.string {
                StringPosition::Escaped => self.string = StringPosition::Inside,
                StringPosition::Inside if byte == b'\\' => {
                    // No key that matters needs an escape.
                    self.keep(byte);
                    self.string = StringPosition::Escaped;
                }
                StringPosition::Inside if byte == b'"' => self.end_string(),
                StringPosition::Inside if self.expects_key => self.keep(byte),
                StringPosition::Inside => {
                    let skipped = memchr2(b'"', b'\\', after).unwrap_or(after.len());
                    rest = after.get(skipped..).unwrap_or_default();
                }
                StringPosition::Outside => self.step(byte),
            }
        }
    }

    fn keep(&mut self, byte: u8) {
        if self.text.len() < TEXT_BYTES_MAX {
            self.text.push(byte);
        }
    }

    fn end_string(&mut self) {
        self.string = StringPosition::Outside;
        if !self.expects_key {
            return;
        }
        self.expects_key = false;
        match self.depth {
            1 => {
                self.outer = match self.text.as_slice() {
                    b"result" => OuterKey::Result,
                    b"error" => OuterKey::Error,
                    _ => OuterKey::Other,
                };
                if self.outer == OuterKey::Result {
                    self.outcome.get_or_insert(ResponseOutcome::Result);
                }
            }
            INNER_DEPTH => {
                self.inner = match self.text.as_slice() {
                    b"isError" => InnerKey::IsError,
                    b"code" => InnerKey::Code,
                    _ => InnerKey::Other,
                };
            }
            _ => {}
        }
        self.text.clear();
    }

    /// One byte outside of strings.
    fn step(&mut self, byte: u8) {
        match byte {
            b'"' => {
                self.text.clear();
                self.string = StringPosition::Inside;
            }
            b'{' | b'[' => {
                if self.depth == 1 && self.outer == OuterKey::Error {
                    self.outcome = Some(ResponseOutcome::Error(None));
                }
                let is_object = byte == b'{';
                if let Some(container) = self.objects.get_mut(self.depth) {
                    *container = is_object;
                }
                self.depth += 1;
                self.inner = InnerKey::Other;
                self.expects_key = is_object && self.depth <= INNER_DEPTH;
            }
            b'}' | b']' => {
                self.end_scalar();
                self.depth = self.depth.saturating_sub(1);
                self.expects_key = false;
            }
            b',' => {
                self.end_scalar();
                let container = self
                    .depth
                    .checked_sub(1)
                    .and_then(|at| self.objects.get(at));
                self.expects_key = container.copied().unwrap_or_default();
            }
            b':' => self.text.clear(),
            _ if byte.is_ascii_whitespace() || self.depth != INNER_DEPTH => {}
            _ => self.keep(byte),
        }
    }

    fn end_scalar(&mut self) {
        if self.depth == INNER_DEPTH {
            let text = self.text.as_slice();
            match (self.outer, self.inner) {
                (OuterKey::Result, InnerKey::IsError) if text == b"true" => {
                    self.outcome = Some(ResponseOutcome::ToolError);
                }
                (OuterKey::Error, InnerKey::Code) => {
                    let code = std::str::from_utf8(text).ok();
                    let code = code.and_then(|text| text.parse().ok());
                    self.outcome = Some(ResponseOutcome::Error(code));
                }
                _ => {}
            }
            self.inner = InnerKey::Other;
        }
        self.text.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whole, and in every cut: the outcome is the same.
    #[track_caller]
    fn check(text: &str, expected: Option<ResponseOutcome>) {
        assert_eq!(
            ResponseOutcome::of_message(text.as_bytes()),
            expected,
            "{text}"
        );
        for at in 0..=text.len() {
            let (head, tail) = text.as_bytes().split_at(at);
            let mut scanner = OutcomeScanner::default();
            scanner.push(head);
            scanner.push(tail);
            assert_eq!(scanner.outcome(), expected, "{text} cut at {at}");
        }
    }

    #[test]
    fn a_tool_error_is_no_result_and_no_text_is_an_error() {
        use ResponseOutcome::{Error, Result, ToolError};
        check(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, Some(Result));
        check(
            r#"{"result":{"content":[],"isError":true},"id":1}"#,
            Some(ToolError),
        );
        check(
            r#"{"id":1,"result" : { "isError" : true , "content":[]}}"#,
            Some(ToolError),
        );
        check(
            r#"{"id":1,"result":{"isError":false,"a":[1,true]}}"#,
            Some(Result),
        );
        check(
            r#"{"id":1,"error":{"code":-32603,"message":"x"}}"#,
            Some(Error(Some(-32603))),
        );
        check(
            r#"{"id":1,"error":{"message":"x","data":{"code":5}, "code":7 }}"#,
            Some(Error(Some(7))),
        );
        check(
            r#"{"id":1,"error":{"message":"no code"}}"#,
            Some(Error(None)),
        );
        check(r#"{"id":1,"error":null,"result":{}}"#, Some(Result));
        let texts = [
            r#"{"id":1,"result":{"content":[{"isError":true}]}}"#,
            r#"{"id":1,"result":{"structuredContent":{"isError":true,"error":{"code":1}}}}"#,
            r#"{"id":1,"result":{"text":"\"isError\":true,\"error\":{"}}"#,
            r#"{"id":1,"result":[{"isError":true},"isError",true]}"#,
            r#"{"isError":true,"id":1,"result":{"text":"}{\\"},"code":1}"#,
        ];
        for text in texts {
            check(text, Some(Result));
        }
    }

    #[test]
    fn messages_that_answer_nothing_have_no_outcome() {
        check(
            r#"{"method":"x","params":{"result":{},"error":{"code":1}}}"#,
            None,
        );
        check("{}", None);
        check("", None);
    }
}
