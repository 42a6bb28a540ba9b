//! A reply in frames: each with a tag, so that what is forged, reordered, cut short or of another request is noticed.
//!
//! A frame is the length of its payload (four bytes), its kind (one), the payload, and a tag of 16 bytes over the
//! request's tag, the frame's number, its kind and its payload. The first one is the head, the last one says that the
//! reply is whole, or that it broke off where it comes from. A head that declines what was asked is first and last.

use std::fmt;

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, Response, StatusCode};
use mooring_session::names::WorkerId;

use super::mac::{MacKey, MacWriter, SHORT_TAG_BYTES, TAG_BYTES};
use super::wire::{Malformed, Reader, Writer};

mod decoder;

pub use decoder::{Frame, FrameDecoder, FrameError};

/// Most bytes in one frame's payload. More is sent in several frames.
const PAYLOAD_BYTES_MAX: usize = 128 * 1024;
/// Length and kind.
const PREFIX_BYTES: usize = 5;
/// What a usual head takes.
const USUAL_HEAD_BYTES: usize = 256;

/// What ties a reply to its request: the reply's key, with the request's tag already in it.
#[derive(Clone)]
pub struct Exchange(MacWriter);

impl Exchange {
    pub(super) fn new(reply_key: &MacKey, request_tag: &[u8; TAG_BYTES]) -> Self {
        Self(reply_key.start().part(request_tag))
    }

    fn frame(&self, number: u64, kind: Kind, payload: &[u8]) -> MacWriter {
        let writer = self.0.clone();
        writer
            .part(&number.to_be_bytes())
            .part(&[kind as u8])
            .part(payload)
    }
}

impl fmt::Debug for Exchange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Exchange")
    }
}

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    Head = 1,
    Data = 2,
    Cut = 3,
    End = 4,
}

impl Kind {
    fn of(code: u8) -> Option<Self> {
        [Self::Head, Self::Data, Self::Cut, Self::End]
            .into_iter()
            .find(|kind| *kind as u8 == code)
    }
}

/// Why a worker does not do what it was asked. Each of them says that nothing was delivered to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Verdict {
    /// It does not hold that connection at that epoch, or is another run of the worker that did.
    #[error("the worker does not hold the connection")]
    NotHere,
    /// It stops, and takes nothing new.
    #[error("the worker is stopping")]
    Draining,
    /// It cannot reach the store, and does not know any more whether it may drive the connection.
    #[error("the worker has fenced itself")]
    Fenced,
    /// It held the connection, and the connection has ended.
    #[error("the connection has ended")]
    Ended,
    /// It does not know how to do that.
    #[error("the worker does not support what it was asked")]
    Unsupported,
}

impl Verdict {
    /// Every verdict.
    pub const ALL: [Self; 5] = [
        Self::NotHere,
        Self::Draining,
        Self::Fenced,
        Self::Ended,
        Self::Unsupported,
    ];

    /// On the wire; 0 says that it was served.
    const fn code(self) -> u8 {
        match self {
            Self::NotHere => 1,
            Self::Draining => 2,
            Self::Fenced => 3,
            Self::Ended => 4,
            Self::Unsupported => 5,
        }
    }

    /// The word in logs and labels.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotHere => "not_here",
            Self::Draining => "draining",
            Self::Fenced => "fenced",
            Self::Ended => "ended",
            Self::Unsupported => "unsupported",
        }
    }
}

/// How a reply begins.
#[derive(Debug)]
pub struct ReplyHead {
    /// The worker that answers, with its boot id.
    pub from: WorkerId,
    /// Status and header of what was served; or that it was not.
    pub outcome: Result<Response<()>, Verdict>,
}

/// The head does not fit in one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the reply's header is too large for another worker: over {PAYLOAD_BYTES_MAX} bytes")]
pub struct HeadTooLarge;

impl ReplyHead {
    fn encode(&self) -> Result<Bytes, HeadTooLarge> {
        let mut writer = Writer::with_capacity(USUAL_HEAD_BYTES);
        writer.bytes(self.from.as_str().as_bytes());
        match &self.outcome {
            Err(verdict) => writer.u8(verdict.code()),
            Ok(head) => writer
                .u8(0)
                .u16(head.status().as_u16())
                .headers(head.headers())
                .map_err(|Malformed| HeadTooLarge)?,
        };
        if writer.len() > PAYLOAD_BYTES_MAX {
            return Err(HeadTooLarge);
        }
        Ok(writer.freeze())
    }

    fn decode(payload: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(payload);
        let from = WorkerId::parse(reader.bytes()?).map_err(|_| Malformed)?;
        let outcome = match reader.u8()? {
            0 => {
                let status = StatusCode::from_u16(reader.u16()?).map_err(|_| Malformed)?;
                Ok(served(status, reader.headers()?))
            }
            code => {
                let verdict = Verdict::ALL.into_iter().find(|one| one.code() == code);
                Err(verdict.ok_or(Malformed)?)
            }
        };
        reader.end()?;
        Ok(Self { from, outcome })
    }
}

fn served(status: StatusCode, headers: HeaderMap) -> Response<()> {
    let mut head = Response::new(());
    *head.status_mut() = status;
    *head.headers_mut() = headers;
    head
}

/// Makes the frames of one reply.
#[derive(Debug)]
pub struct FrameEncoder {
    exchange: Exchange,
    number: u64,
}

impl FrameEncoder {
    /// The frames of the reply to the request of this exchange.
    #[must_use]
    pub const fn new(exchange: Exchange) -> Self {
        Self {
            exchange,
            number: 0,
        }
    }

    /// The first frame; also the last, where the head declines.
    ///
    /// # Errors
    /// The head does not fit in one frame.
    pub fn head(&mut self, head: &ReplyHead) -> Result<Bytes, HeadTooLarge> {
        let payload = head.encode()?;
        let mut frame = BytesMut::new();
        self.append(&mut frame, Kind::Head, &payload);
        Ok(frame.freeze())
    }

    /// As many frames as a piece of the body takes; none for an empty one.
    #[must_use]
    pub fn data(&mut self, piece: &[u8]) -> Bytes {
        let mut frames = BytesMut::with_capacity(piece.len() + PREFIX_BYTES + SHORT_TAG_BYTES);
        for payload in piece.chunks(PAYLOAD_BYTES_MAX) {
            self.append(&mut frames, Kind::Data, payload);
        }
        frames.freeze()
    }

    /// The last frame of a reply that broke off where it comes from.
    #[must_use]
    pub fn cut(mut self) -> Bytes {
        self.last(Kind::Cut)
    }

    /// The last frame of a reply that is whole.
    #[must_use]
    pub fn end(mut self) -> Bytes {
        self.last(Kind::End)
    }

    fn last(&mut self, kind: Kind) -> Bytes {
        let mut frame = BytesMut::new();
        self.append(&mut frame, kind, b"");
        frame.freeze()
    }

    /// `payload` is within its limit, so its length fits.
    fn append(&mut self, frames: &mut BytesMut, kind: Kind, payload: &[u8]) {
        frames.reserve(PREFIX_BYTES + payload.len() + SHORT_TAG_BYTES);
        frames.put_u32(u32::try_from(payload.len()).unwrap_or(u32::MAX));
        frames.put_u8(kind as u8);
        frames.put_slice(payload);
        let tag = self.exchange.frame(self.number, kind, payload).short_tag();
        frames.put_slice(&tag);
        self.number += 1;
    }
}

#[cfg(test)]
mod tests;
