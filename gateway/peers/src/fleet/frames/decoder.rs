//! Reading a reply's frames as they arrive.
//!
//! Invariant: nothing is given out before the tag of its frame is checked, and a reply counts as ended only where its
//! last frame says so. Memory is bounded by one frame and one piece of the connection's.

use bytes::{Bytes, BytesMut};

use super::{Exchange, Kind, PAYLOAD_BYTES_MAX, PREFIX_BYTES, ReplyHead};
use crate::fleet::mac::SHORT_TAG_BYTES;
use crate::fleet::wire::Malformed;

/// What has arrived.
#[derive(Debug)]
pub enum Frame {
    /// How the reply begins: the first frame.
    Head(ReplyHead),
    /// A piece of its body, never empty.
    Data(Bytes),
    /// It broke off where it comes from: the last frame.
    Cut,
    /// It is whole: the last frame.
    End,
}

/// What arrived is not what the other worker sent as the reply to this request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// A frame is said to be larger than any is made.
    #[error("a frame is larger than {PAYLOAD_BYTES_MAX} bytes")]
    TooLarge,
    /// A frame is of no known kind.
    #[error("a frame is of no known kind")]
    Kind,
    /// A frame's tag is not that of the frame that has to come here.
    #[error("a frame is not authentic")]
    NotAuthentic,
    /// A frame is authentic, and in the wrong place or unreadable.
    #[error("a frame is malformed")]
    Malformed,
    /// Something comes after the last frame.
    #[error("something follows the last frame")]
    AfterEnd,
}

/// Where in the reply it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Head,
    Body,
    Ended,
}

/// Takes a reply's frames out of its bytes. Not to be used after an error.
#[derive(Debug)]
pub struct FrameDecoder {
    exchange: Exchange,
    number: u64,
    place: Place,
    held: BytesMut,
}

impl FrameDecoder {
    /// For the reply to the request of this exchange.
    #[must_use]
    pub fn new(exchange: Exchange) -> Self {
        Self {
            exchange,
            number: 0,
            place: Place::Head,
            held: BytesMut::new(),
        }
    }

    /// Adds what has arrived.
    pub fn push(&mut self, bytes: &[u8]) {
        self.held.extend_from_slice(bytes);
    }

    /// Whether the last frame has come.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.place == Place::Ended
    }

    /// The next frame that is whole; none where more has to arrive, or the last one has.
    ///
    /// # Errors
    /// See [`FrameError`].
    pub fn take_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        if self.place == Place::Ended {
            return if self.held.is_empty() {
                Ok(None)
            } else {
                Err(FrameError::AfterEnd)
            };
        }
        let Some(([a, b, c, d, kind], _)) = self.held.split_first_chunk::<PREFIX_BYTES>() else {
            return Ok(None);
        };
        let length = usize::try_from(u32::from_be_bytes([*a, *b, *c, *d]))
            .ok()
            .filter(|length| *length <= PAYLOAD_BYTES_MAX)
            .ok_or(FrameError::TooLarge)?;
        let kind = Kind::of(*kind).ok_or(FrameError::Kind)?;
        if self.held.len() < PREFIX_BYTES + length + SHORT_TAG_BYTES {
            return Ok(None);
        }
        let _ = self.held.split_to(PREFIX_BYTES);
        let payload = self.held.split_to(length).freeze();
        let tag = self.held.split_to(SHORT_TAG_BYTES);
        let tag = tag.first_chunk().ok_or(FrameError::Malformed)?;
        let expected = self.exchange.frame(self.number, kind, &payload);
        if !expected.matches_short(tag) {
            return Err(FrameError::NotAuthentic);
        }
        self.number += 1;
        self.place(kind, payload).map(Some)
    }

    /// What an authentic frame means where it stands.
    fn place(&mut self, kind: Kind, payload: Bytes) -> Result<Frame, FrameError> {
        match (self.place, kind) {
            (Place::Head, Kind::Head) => {
                let head =
                    ReplyHead::decode(&payload).map_err(|Malformed| FrameError::Malformed)?;
                self.place = match head.outcome {
                    Ok(_) => Place::Body,
                    Err(_) => Place::Ended,
                };
                Ok(Frame::Head(head))
            }
            (Place::Body, Kind::Data) if !payload.is_empty() => Ok(Frame::Data(payload)),
            (Place::Body, Kind::Cut | Kind::End) if payload.is_empty() => {
                self.place = Place::Ended;
                Ok(match kind {
                    Kind::Cut => Frame::Cut,
                    _ => Frame::End,
                })
            }
            _ => Err(FrameError::Malformed),
        }
    }
}
