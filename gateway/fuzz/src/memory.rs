//! A connection in memory: it takes a request, then delivers a response in pieces, and ends.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use hyper::rt::ReadBufCursor;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Most polls of one exchange: each reads a piece, of which there are at most as many as bytes.
const POLLS_MAX: usize = 100_000;

/// The connection.
#[derive(Debug)]
pub struct Connection {
    response: Vec<u8>,
    read: usize,
    piece_bytes: usize,
    /// Nothing arrives before something was sent.
    is_written: bool,
}

impl Connection {
    /// A connection that delivers this response in pieces of so many bytes.
    #[must_use]
    pub fn new(response: &[u8], piece_bytes: usize) -> Self {
        Self {
            response: response.to_vec(),
            read: 0,
            piece_bytes: piece_bytes.max(1),
            is_written: false,
        }
    }

    /// The next piece, of at most so many bytes.
    fn take(&mut self, room: usize) -> Poll<&[u8]> {
        if !self.is_written {
            return Poll::Pending;
        }
        let rest = &self.response[self.read..];
        let piece = &rest[..rest.len().min(self.piece_bytes).min(room)];
        self.read += piece.len();
        Poll::Ready(piece)
    }

    fn write(&mut self, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.is_written = true;
        Poll::Ready(Ok(bytes.len()))
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.take(buffer.remaining())
            .map(|piece| Ok(buffer.put_slice(piece)))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.write(bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl hyper::rt::Read for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        self.take(buffer.remaining())
            .map(|piece| Ok(buffer.put_slice(piece)))
    }
}

impl hyper::rt::Write for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.write(bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Polls until it is ready. Nothing here waits for anything but polls.
///
/// # Panics
/// It is not ready after [`POLLS_MAX`] polls.
pub fn poll_to_end<T>(mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> T {
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..POLLS_MAX {
        if let Poll::Ready(value) = poll(&mut context) {
            return value;
        }
    }
    panic!("no end after {POLLS_MAX} polls");
}
