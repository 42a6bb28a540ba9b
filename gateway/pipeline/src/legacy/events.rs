//! A stream as the events of a response.
//!
//! Invariant: dropping the response, because the client disconnected or the gateway drains, ends the stream.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::Stream;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::streams::StreamSlot;
use crate::client_stream::OpenStream;

/// The events of one client's stream, as written.
#[derive(Debug)]
pub struct StreamEvents {
    stream: Arc<OpenStream>,
    draining: Pin<Box<WaitForCancellationFutureOwned>>,
    _slot: StreamSlot,
}

impl StreamEvents {
    /// The events of this stream, until it ends or the gateway drains.
    pub(super) fn new(
        stream: Arc<OpenStream>,
        slot: StreamSlot,
        draining: CancellationToken,
    ) -> Self {
        Self {
            stream,
            draining: Box::pin(draining.cancelled_owned()),
            _slot: slot,
        }
    }
}

impl Stream for StreamEvents {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Infallible>>> {
        let this = &mut *self;
        match this.stream.poll_next(context) {
            Poll::Ready(event) => Poll::Ready(event.map(Ok)),
            Poll::Pending => this.draining.as_mut().poll(context).map(|()| None),
        }
    }
}

impl Drop for StreamEvents {
    fn drop(&mut self) {
        self.stream.cut();
    }
}
