//! A stream that is lent for a while.
//!
//! Invariant: the owner gets it back only after the borrower has dropped its side.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::lock::{self, lock};

/// The borrower's side.
pub(super) struct LentStream<S>(Arc<Mutex<S>>);

/// The owner's side.
pub(super) struct StreamOwner<S>(Arc<Mutex<S>>);

impl<S> LentStream<S> {
    /// Both sides.
    pub(super) fn lend(stream: S) -> (StreamOwner<S>, Self) {
        let stream = Arc::new(Mutex::new(stream));
        (StreamOwner(Arc::clone(&stream)), Self(stream))
    }
}

impl<S> StreamOwner<S> {
    /// The stream; none while it is still lent.
    pub(super) fn take_back(self) -> Option<S> {
        Arc::into_inner(self.0).map(lock::into_inner)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for LentStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut *lock(&self.0)).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for LentStream<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *lock(&self.0)).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *lock(&self.0)).poll_flush(context)
    }

    /// The stream stays open for its owner.
    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(context)
    }
}
