//! The gateway's errors for server-to-client requests that the client cannot or does not answer.
//!
//! Invariant: every text is one valid JSON-RPC error that names the server's request.

use bytes::Bytes;

use super::key::Key;
use crate::answer_in_place::error_response;

/// Why the client did not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It did not declare the capability.
    NoCapability,
    /// It did not answer in time.
    TimedOut,
    /// It has no open stream.
    NoListener,
    /// Too many requests to it are open.
    TooMany,
}

impl Refusal {
    /// JSON-RPC's code for an unknown method, the SDKs' code for a timeout, and an implementation-defined code for the
    /// others.
    const fn code_and_message(self) -> (i32, &'static str) {
        match self {
            Self::NoCapability => (-32601, "the client does not support this"),
            Self::TimedOut => (-32001, "the client did not answer in time"),
            Self::NoListener => (-32000, "the client does not listen"),
            Self::TooMany => (-32000, "too many requests to the client are open"),
        }
    }

    /// The error response to the server's request.
    pub(super) fn answering(self, key: &Key) -> Bytes {
        let (code, message) = self.code_and_message();
        error_response(&key.to_json(), code, message)
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
            Refusal::NoListener,
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
