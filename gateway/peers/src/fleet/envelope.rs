//! The envelope: what one worker asks of another, with everything that decides what is done with it.
//!
//! Layout: a version, the fields in the order of [`Envelope::encode`], each in the one way that `wire` writes it, and the
//! tag over all of it. The message itself follows outside; the envelope has its length and its SHA-256.
//!
//! It travels in front of the message in the body of a POST. Not in a header: session key and principal are secrets, and
//! header fields are what proxies and debug logs show first.

use std::fmt;

use bytes::Bytes;
use http::{HeaderMap, Method};
use mooring_session::names::{Principal, ServerName, WorkerId};
use sha2::{Digest, Sha256};

use super::mac::TAG_BYTES;
use super::wire::{Malformed, Reader, Writer};

/// The version of this layout. Another version is refused before anything else is looked at.
pub(super) const VERSION: u8 = 1;
/// Most bytes of an envelope with its tag.
pub(crate) const ENVELOPE_BYTES_MAX: usize = 64 * 1024;
/// What the fields of a usual envelope take.
const USUAL_BYTES: usize = 1024;

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Serve a message, a stream or a deletion at a connection.
    Serve,
    /// Make a connection anew that was lost.
    Renew,
    /// Close a connection.
    Close,
    /// Deliver a message to the stream of a legacy client.
    Stream,
}

impl Operation {
    /// Every operation.
    pub const ALL: [Self; 4] = [Self::Serve, Self::Renew, Self::Close, Self::Stream];

    const fn code(self) -> u8 {
        match self {
            Self::Serve => 1,
            Self::Renew => 2,
            Self::Close => 3,
            Self::Stream => 4,
        }
    }

    fn of(code: u8) -> Result<Self, Malformed> {
        let found = Self::ALL.into_iter().find(|one| one.code() == code);
        found.ok_or(Malformed)
    }
}

/// What one worker asks of another: the same at both ends.
#[derive(Clone, PartialEq, Eq)]
pub struct Forward {
    /// What is asked.
    pub operation: Operation,
    /// The key of the session's record: a secret.
    pub session_key: Box<str>,
    /// Whose session it is.
    pub principal: Principal,
    /// The server that the connection goes to.
    pub server: ServerName,
    /// The epoch of the binding that names the asked worker as owner.
    pub epoch: u64,
    /// The method of the client's request.
    pub method: Method,
    /// What of its header matters to the connection.
    pub headers: HeaderMap,
    /// The message; empty where the method has none.
    pub body: Bytes,
}

impl fmt::Debug for Forward {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Forward")
            .field("operation", &self.operation)
            .field(
                "session",
                &mooring_secrets::digest::short(&self.session_key),
            )
            .field("server", &self.server)
            .field("epoch", &self.epoch)
            .field("method", &self.method)
            .field("body_bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

/// A message's length and digest: what the envelope says about what follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyMark {
    /// How many bytes follow.
    pub bytes: u64,
    sha256: [u8; 32],
}

impl BodyMark {
    pub(super) fn of(body: &[u8]) -> Self {
        Self {
            bytes: u64::try_from(body.len()).unwrap_or(u64::MAX),
            sha256: Sha256::digest(body).into(),
        }
    }

    /// Whether it is the mark of this message. Not a secret, so the time that it takes may tell something.
    #[must_use]
    pub fn is_of(&self, body: &[u8]) -> bool {
        *self == Self::of(body)
    }
}

/// Why something cannot be asked: nothing was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// The header fields and names are too many or too long.
    #[error(
        "the request's header is too large for another worker: over {ENVELOPE_BYTES_MAX} bytes"
    )]
    TooLarge,
}

/// Everything that is signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Envelope {
    /// Who asks.
    pub(super) from: WorkerId,
    /// Who is asked, with its boot id: another run of it has other connections.
    pub(super) to: WorkerId,
    /// When, by the clock of who asks, in milliseconds since 1970.
    pub(super) sent_at_ms: u64,
    /// Random: no two envelopes have the same.
    pub(super) nonce: u128,
    /// What is asked. Its body is empty here, and marked by `body`.
    pub(super) forward: Forward,
    /// The message that follows.
    pub(super) body: BodyMark,
}

impl Envelope {
    /// The signed bytes, short of the tag.
    pub(super) fn encode(&self) -> Result<Writer, SealError> {
        let Self { forward, body, .. } = self;
        let mut writer = Writer::with_capacity(USUAL_BYTES);
        writer
            .u8(VERSION)
            .bytes(self.from.as_str().as_bytes())
            .bytes(self.to.as_str().as_bytes())
            .u64(self.sent_at_ms)
            .exactly(&self.nonce.to_be_bytes())
            .u8(forward.operation.code())
            .bytes(forward.session_key.as_bytes())
            .bytes(forward.principal.as_str().as_bytes())
            .bytes(forward.server.as_str().as_bytes())
            .u64(forward.epoch)
            .bytes(forward.method.as_str().as_bytes())
            .headers(&forward.headers)
            .map_err(|Malformed| SealError::TooLarge)?
            .u64(body.bytes)
            .exactly(&body.sha256);
        if writer.len() > ENVELOPE_BYTES_MAX - TAG_BYTES {
            return Err(SealError::TooLarge);
        }
        Ok(writer)
    }

    /// Reads signed bytes, whose tag has been checked.
    pub(super) fn decode(signed: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(signed);
        if reader.u8()? != VERSION {
            return Err(Malformed);
        }
        let envelope = Self {
            from: WorkerId::parse(reader.bytes()?).map_err(|_| Malformed)?,
            to: WorkerId::parse(reader.bytes()?).map_err(|_| Malformed)?,
            sent_at_ms: reader.u64()?,
            nonce: u128::from_be_bytes(reader.array()?),
            forward: Forward {
                operation: Operation::of(reader.u8()?)?,
                session_key: reader.text()?.into(),
                principal: Principal::parse(reader.bytes()?).map_err(|_| Malformed)?,
                server: ServerName::parse(reader.bytes()?).map_err(|_| Malformed)?,
                epoch: reader.u64()?,
                method: Method::from_bytes(reader.bytes()?).map_err(|_| Malformed)?,
                headers: reader.headers()?,
                body: Bytes::new(),
            },
            body: BodyMark {
                bytes: reader.u64()?,
                sha256: reader.array()?,
            },
        };
        reader.end()?;
        Ok(envelope)
    }
}
