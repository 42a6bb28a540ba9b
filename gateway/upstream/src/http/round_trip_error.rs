//! Why a request over a connection got no response, and the limits of responses that it names.
//!
//! Invariant: each error says whether the server sent what is no response, or the connection failed.

use std::io;

/// Most interim responses (RFC 9110, section 15.2) before the response to one request.
pub(super) const INTERIM_RESPONSES_MAX: u32 = 100;
/// Largest head of a response, in bytes.
pub(super) const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Most headers of a response.
pub(super) const HEADERS_MAX: usize = 100;

/// Why a connection that was made got no response, or lost the rest of it.
#[derive(Debug, thiserror::Error)]
pub enum RoundTripError {
    /// A part of the request was not written.
    #[error("the request could not be written")]
    Write(#[source] io::Error),
    /// Reading failed.
    #[error("the response could not be read")]
    Read(#[source] io::Error),
    /// The server closed the connection.
    #[error("the connection was closed before the response was complete")]
    Closed,
    /// The server's host acknowledges nothing, see [`SilenceLimits`](super::SilenceLimits).
    #[error("the server's host stopped acknowledging what it is sent: it may have vanished")]
    HostSilent,
    /// The head is not HTTP/1.x, or has a header on several lines, which RFC 9112 forbids.
    #[error("the head of the response is invalid: {0}")]
    Head(#[source] httparse::Error),
    /// The head has too many headers.
    #[error("the response has more than {HEADERS_MAX} headers")]
    TooManyHeaders,
    /// The body has a content coding, although none was accepted.
    #[error("the response is compressed ({0}) although the request accepts no coding but identity")]
    Encoded(Box<str>),
    /// The head does not end.
    #[error("the head of the response is larger than {HEAD_BYTES_MAX} bytes")]
    HeadTooLarge,
    /// Interim responses do not end.
    #[error(
        "the server sent more than {INTERIM_RESPONSES_MAX} interim responses (status 1xx) to one request"
    )]
    TooManyInterim,
    /// What arrived before the request was sent answers another one, or none.
    #[error("the server sent a response before it was sent the request")]
    Unrequested,
    /// A length or transfer coding that cannot be relied on (RFC 9112, section 6.3).
    #[error("the length of the response is invalid")]
    Length,
    /// The body is not in chunks as it says (RFC 9112, section 7.1).
    #[error("a chunk of the response is invalid")]
    Chunk,
}

impl RoundTripError {
    /// Whether the server sent what is no response or exceeds a limit. Otherwise the connection failed.
    #[must_use]
    pub const fn is_invalid_response(&self) -> bool {
        match self {
            Self::Write(_) | Self::Read(_) | Self::HostSilent | Self::Closed => false,
            Self::Head(_)
            | Self::TooManyHeaders
            | Self::Encoded(_)
            | Self::HeadTooLarge
            | Self::TooManyInterim
            | Self::Unrequested
            | Self::Length
            | Self::Chunk => true,
        }
    }

    pub(super) fn failed(error: io::Error, otherwise: fn(io::Error) -> Self) -> Self {
        match error.kind() {
            // No read or write here has a time limit of its own.
            io::ErrorKind::TimedOut => Self::HostSilent,
            _ => otherwise(error),
        }
    }
}

impl From<httparse::Error> for RoundTripError {
    fn from(error: httparse::Error) -> Self {
        match error {
            httparse::Error::TooManyHeaders => Self::TooManyHeaders,
            error => Self::Head(error),
        }
    }
}
