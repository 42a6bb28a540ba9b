//! Bytes of the program, received without ancillary data, and split into frames.
//!
//! Invariant: at most one frame and one further read are buffered, and memory is never allocated from a length field
//! alone.

use std::io::{self, IoSliceMut};

use bytes::{Buf, BytesMut};
use rustix::net::{RecvAncillaryBuffer, RecvFlags, ReturnFlags, recvmsg};
use tokio::io::Interest;
use tokio::net::UnixStream;

/// Bytes of a frame's length.
pub(super) const LENGTH_BYTES: usize = 4;

/// Read at once.
const PIECE_BYTES: usize = 16 * 1024;

/// The bytes that were read and not yet consumed.
pub(super) struct Incoming {
    bytes: BytesMut,
    /// Where the kernel writes.
    piece: Vec<u8>,
    frame_bytes_max: usize,
}

/// The outcome of one read from the socket.
pub(super) enum ReadOutcome {
    /// Bytes.
    Bytes,
    /// Something was sent along with bytes. Neither was taken.
    More,
    /// The peer has closed the socket.
    End,
}

/// The first item in the received bytes.
pub(super) enum Next {
    /// A whole frame, without its length.
    Frame(BytesMut),
    /// Less than that.
    Part,
    /// The length of something that is longer than a frame may be.
    TooLong(u32),
}

impl Incoming {
    pub(super) fn new(frame_bytes_max: usize) -> Self {
        Self {
            bytes: BytesMut::new(),
            piece: vec![0; PIECE_BYTES],
            frame_bytes_max,
        }
    }

    /// Waits for the next piece. Nothing is lost where it is not waited for any more.
    ///
    /// A piece that came with descriptors ends where they do, so that a short one does not mean that nothing more is
    /// there, as the stream's own reading takes it.
    pub(super) async fn receive(&mut self, from: &UnixStream) -> io::Result<ReadOutcome> {
        let received = from
            .async_io(Interest::READABLE, || {
                // No room for anything but bytes: the kernel closes descriptors, and says that there were some.
                let mut room = RecvAncillaryBuffer::default();
                let mut slices = [IoSliceMut::new(&mut self.piece)];
                Ok(recvmsg(from, &mut slices, &mut room, RecvFlags::DONTWAIT)?)
            })
            .await?;
        if received.flags.contains(ReturnFlags::CTRUNC) {
            return Ok(ReadOutcome::More);
        }
        let piece = self.piece.get(..received.bytes).unwrap_or_default();
        self.bytes.extend_from_slice(piece);
        Ok(if piece.is_empty() {
            ReadOutcome::End
        } else {
            ReadOutcome::Bytes
        })
    }

    /// The length of an incomplete frame so far.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Takes the next frame.
    pub(super) fn next(&mut self) -> Next {
        let Some(length) = self.bytes.first_chunk::<LENGTH_BYTES>() else {
            return Next::Part;
        };
        let length = u32::from_be_bytes(*length);
        let Some(frame_bytes) = usize::try_from(length)
            .ok()
            .filter(|&bytes| bytes <= self.frame_bytes_max)
        else {
            return Next::TooLong(length);
        };
        if self.bytes.len() - LENGTH_BYTES < frame_bytes {
            return Next::Part;
        }
        self.bytes.advance(LENGTH_BYTES);
        Next::Frame(self.bytes.split_to(frame_bytes))
    }
}
