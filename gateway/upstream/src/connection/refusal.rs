//! What the server is told when the client cannot be asked, or does not answer.
//!
//! Invariant: every text is one valid JSON-RPC error that names the server's request.

use bytes::Bytes;

use super::key::Key;

/// Why there is no answer of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It did not declare the capability.
    NoCapability,
    /// It did not answer in time.
    TimedOut,
    /// It has no stream on which it could be asked.
    NobodyListens,
    /// It has too many open questions.
    TooMany,
}

impl Refusal {
    /// The code is that of JSON-RPC for a method that is not there, that of the SDKs for a time-out, and one that is
    /// free for implementations otherwise.
    const fn code_and_message(self) -> (i32, &'static str) {
        match self {
            Self::NoCapability => (-32601, "the client does not support this"),
            Self::TimedOut => (-32001, "the client did not answer in time"),
            Self::NobodyListens => (-32000, "the client does not listen"),
            Self::TooMany => (-32000, "too many requests to the client are open"),
        }
    }

    /// The answer to the server's request.
    pub(super) fn answering(self, key: &Key) -> Bytes {
        let (code, message) = self.code_and_message();
        let id = key.to_json();
        Bytes::from(format!(
            r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":"{message}"}}}}"#
        ))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test code")]
    use super::*;
    use mooring_protocol::{Kind, Message, Sender};

    #[test]
    fn a_refusal_is_an_error_to_the_request() {
        for refusal in [
            Refusal::NoCapability,
            Refusal::TimedOut,
            Refusal::NobodyListens,
            Refusal::TooMany,
        ] {
            let key = Key::of(r#""a\"b""#);
            let text = refusal.answering(&key);
            let message = Message::parse(&text, Sender::Client).unwrap();
            assert_eq!(message.kind(), Kind::Error);
            assert_eq!(Key::of(message.id().unwrap().as_json()), key);
        }
    }
}
