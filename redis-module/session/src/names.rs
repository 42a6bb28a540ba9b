//! Validated names, so that no rule gets an unchecked string.
//!
//! Invariant: a value of these types satisfies its limit and alphabet, because only `parse` creates one. Copies share
//! the text, on the way from the request through the record to the reply.

use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::limits;

/// A name, text or number that does not satisfy its limit or alphabet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid {what}: {problem}")]
pub struct NameError {
    /// The argument, as named in the command's grammar.
    pub what: &'static str,
    /// What is wrong with it.
    pub problem: Problem,
}

/// What is wrong with a name. It never contains the value, which may be a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// It is empty.
    #[error("must not be empty")]
    Empty,
    /// More bytes than allowed.
    #[error("longer than {0} bytes")]
    TooLong(usize),
    /// A byte outside the alphabet.
    #[error("{0}")]
    Alphabet(&'static str),
    /// Not an integer within its range.
    #[error("must be an integer from {0} to {1}")]
    Range(u64, u64),
}

/// The bytes that a name may contain.
enum Alphabet {
    /// `[A-Za-z0-9._:-]`
    Identifier,
    /// 0x21 to 0x7E: what MCP allows in a session id.
    VisibleAscii,
    /// UTF-8 without control characters.
    Text,
}

fn check<'a>(
    what: &'static str,
    bytes: &'a [u8],
    least: usize,
    most: usize,
    alphabet: &Alphabet,
) -> Result<&'a str, NameError> {
    let fail = |problem| Err(NameError { what, problem });
    if bytes.len() < least {
        return fail(Problem::Empty);
    }
    if bytes.len() > most {
        return fail(Problem::TooLong(most));
    }
    let Ok(text) = std::str::from_utf8(bytes) else {
        return fail(Problem::Alphabet("must be valid UTF-8"));
    };
    match alphabet {
        Alphabet::Identifier
            if !bytes
                .iter()
                .all(|b| b.is_ascii_alphanumeric() || b"._:-".contains(b)) =>
        {
            fail(Problem::Alphabet(
                "only letters, digits and . _ : - are allowed",
            ))
        }
        Alphabet::VisibleAscii if !bytes.iter().all(u8::is_ascii_graphic) => fail(
            Problem::Alphabet("only visible ASCII without spaces is allowed"),
        ),
        Alphabet::Text if text.chars().any(char::is_control) => {
            fail(Problem::Alphabet("control characters are not allowed"))
        }
        _ => Ok(text),
    }
}

macro_rules! names {
    ($($(#[$doc:meta])* $name:ident, $what:literal, $least:literal..=$most:expr, $alphabet:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Parses the name.
            ///
            /// # Errors
            /// Says what is wrong, without the value.
            pub fn parse(bytes: &[u8]) -> Result<Self, NameError> {
                Self::check(bytes).map(Self::of_checked)
            }

            /// The same without a copy, for comparison only.
            ///
            /// # Errors
            /// As [`parse`](Self::parse).
            pub fn check(bytes: &[u8]) -> Result<&str, NameError> {
                check($what, bytes, $least, $most, &Alphabet::$alphabet)
            }

            /// A copy of text that passed [`check`](Self::check).
            pub(crate) fn of_checked(text: &str) -> Self {
                Self(text.into())
            }

            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(formatter)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, concat!(stringify!($name), "({})"), self.0)
            }
        }
    )*};
}

names! {
    /// The id of a session as the client or the caller knows it.
    SessionId, "id", 1..=limits::SESSION_ID_BYTES_MAX, Identifier;
    /// The name of an upstream server. Bindings are named by it.
    ServerName, "server", 1..=limits::SERVER_BYTES_MAX, VisibleAscii;
    /// One of the interchangeable processes behind a server.
    InstanceName, "instance", 1..=limits::INSTANCE_BYTES_MAX, VisibleAscii;
    /// Random per attempt, chosen by the caller: a retry uses the same one.
    Token, "token", 1..=limits::TOKEN_BYTES_MAX, VisibleAscii;
    /// The session id that an upstream assigned. A secret between gateway and upstream.
    UpstreamSession, "upstream session", 1..=limits::UPSTREAM_SESSION_BYTES_MAX, VisibleAscii;
    /// A digest of what was mounted into a code session.
    ContentHash, "content hash", 1..=limits::CONTENT_HASH_BYTES_MAX, VisibleAscii;
    /// The name of a label.
    LabelName, "label name", 1..=limits::LABEL_NAME_BYTES_MAX, Identifier;
    /// The value of a label.
    LabelValue, "label value", 0..=limits::LABEL_VALUE_BYTES_MAX, Text;
    /// Why a binding was moved, for people.
    Reason, "reason", 1..=limits::REASON_BYTES_MAX, Text;
    /// The address at which a worker's peers reach it.
    Address, "address", 1..=limits::ADDRESS_BYTES_MAX, VisibleAscii;
}

/// As text, to search for a token without a copy.
impl Deref for Token {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for Token {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// The owner of a session. `*` is not a principal.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Principal(Arc<str>);

impl Principal {
    /// Parses a principal.
    ///
    /// # Errors
    /// Empty, over 320 bytes, not UTF-8, control characters, or `*`.
    pub fn parse(bytes: &[u8]) -> Result<Self, NameError> {
        Self::check(bytes).map(Self::of_checked)
    }

    /// The same without a copy, for comparison only.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn check(bytes: &[u8]) -> Result<&str, NameError> {
        let what = "principal";
        let text = check(what, bytes, 1, limits::PRINCIPAL_BYTES_MAX, &Alphabet::Text)?;
        if text == "*" {
            return Err(NameError {
                what,
                problem: Problem::Alphabet("* is not a principal"),
            });
        }
        Ok(text)
    }

    /// A copy of text that passed [`check`](Self::check).
    pub(crate) fn of_checked(text: &str) -> Self {
        Self(text.into())
    }

    /// The principal `local`: all clients, if authentication is off.
    #[must_use]
    pub fn local() -> Self {
        Self::of_checked("local")
    }

    /// The principal `mooring`, of a gateway's own requests.
    #[must_use]
    pub fn gateway() -> Self {
        Self::of_checked("mooring")
    }

    /// The principal as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A worker: a configured name, and after the last colon the boot id of one run of it.
/// A bare name without a colon is a worker with an empty boot id. `-` is not a worker: in a record it means none.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WorkerId(Arc<str>);

impl WorkerId {
    /// Parses a worker id.
    ///
    /// # Errors
    /// Empty, over 128 bytes, not visible ASCII, or `-`.
    pub fn parse(bytes: &[u8]) -> Result<Self, NameError> {
        Self::check(bytes).map(Self::of_checked)
    }

    /// A copy of text that passed [`check`](Self::check).
    pub(crate) fn of_checked(text: &str) -> Self {
        Self(text.into())
    }

    /// The same without a copy, for comparison only.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn check(bytes: &[u8]) -> Result<&str, NameError> {
        let what = "worker";
        let most = limits::WORKER_BYTES_MAX;
        let text = check(what, bytes, 1, most, &Alphabet::VisibleAscii)?;
        if text == "-" {
            return Err(NameError {
                what,
                problem: Problem::Alphabet("- is not a worker"),
            });
        }
        Ok(text)
    }

    /// The whole id.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The configured name, which survives restarts.
    #[must_use]
    pub fn name(&self) -> &str {
        Self::name_of(self)
    }

    /// The configured name in a whole id.
    #[must_use]
    pub fn name_of(id: &str) -> &str {
        id.rsplit_once(':').map_or(id, |(name, _)| name)
    }

    /// The boot id of this run; empty if there is none.
    #[must_use]
    pub fn boot(&self) -> &str {
        self.0.rsplit_once(':').map_or("", |(_, boot)| boot)
    }
}

/// As text, to look up a worker by the id in a record, without a copy.
impl Deref for WorkerId {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for WorkerId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// Parses a decimal integer within `least..=most`; signs, spaces and leading zeros are refused.
///
/// # Errors
/// Names `what` and the range.
pub fn parse_integer(
    what: &'static str,
    bytes: &[u8],
    least: u64,
    most: u64,
) -> Result<u64, NameError> {
    let range = NameError {
        what,
        problem: Problem::Range(least, most),
    };
    let canonical = bytes == b"0" || bytes.first().is_some_and(|b| (b'1'..=b'9').contains(b));
    if !canonical {
        return Err(range);
    }
    let mut value: u64 = 0;
    for byte in bytes {
        if !byte.is_ascii_digit() {
            return Err(range);
        }
        value = value
            .checked_mul(10)
            .and_then(|v| v.checked_add(u64::from(byte - b'0')))
            .ok_or(range)?;
    }
    if (least..=most).contains(&value) {
        Ok(value)
    } else {
        Err(range)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    #[test]
    fn names_refuse_what_their_alphabet_does_not_hold() {
        let cases: &[(&[u8], bool)] = &[
            (b"abc-1.2_3:4", true),
            (b"", false),
            (b"a b", false),
            (b"a\0b", false),
            (b"caf\xc3\xa9", false),
            (&[b'x'; 128], true),
            (&[b'x'; 129], false),
        ];
        for (bytes, good) in cases {
            assert_eq!(SessionId::parse(bytes).is_ok(), *good, "{bytes:?}");
        }
        assert!(Principal::parse("zoë@example.org".as_bytes()).is_ok());
        assert!(Principal::parse(b"*").is_err());
        assert!(Principal::parse(b"a\nb").is_err());
        assert!(Principal::parse(&[0xff]).is_err());
        assert!(Reason::parse("%s%n".as_bytes()).is_ok());
    }

    #[test]
    fn a_worker_is_a_name_and_a_boot() {
        let worker = WorkerId::parse(b"host:4444:b1").unwrap();
        assert_eq!((worker.name(), worker.boot()), ("host:4444", "b1"));
        let bare = WorkerId::parse(b"host").unwrap();
        assert_eq!((bare.name(), bare.boot()), ("host", ""));
        assert!(WorkerId::parse(b"-").is_err());
    }

    #[test]
    fn integers_are_canonical_and_within_their_range() {
        for (bytes, expected) in [
            (&b"0"[..], Some(0)),
            (b"10", Some(10)),
            (b"11", None),
            (b"-1", None),
            (b"+1", None),
            (b" 1", None),
            (b"01", None),
            (b"1e1", None),
            (b"", None),
            (b"99999999999999999999999", None),
        ] {
            assert_eq!(parse_integer("n", bytes, 0, 10).ok(), expected, "{bytes:?}");
        }
    }
}
