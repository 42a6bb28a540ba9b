//! A stream as the body of a response.
//!
//! Invariant: a body that is dropped, because the client is gone or the worker stops, ends its stream.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame};
use tokio::time::{Instant, Sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::streams::StreamSlot;
use crate::client_stream::OpenStream;
use mooring_protocol::event::comment;

/// How long a stream may be silent before a comment keeps it open, well under the usual 60 s of proxies.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The body of one client's stream.
#[derive(Debug)]
pub struct StreamBody {
    stream: Arc<OpenStream>,
    keep_alive: Pin<Box<Sleep>>,
    stopping: Pin<Box<WaitForCancellationFutureOwned>>,
    _slot: StreamSlot,
}

impl StreamBody {
    /// The events of this stream, until it is over or the worker stops.
    #[must_use]
    pub fn new(stream: Arc<OpenStream>, slot: StreamSlot, stopping: &CancellationToken) -> Self {
        Self {
            stream,
            keep_alive: Box::pin(tokio::time::sleep(KEEP_ALIVE)),
            stopping: Box::pin(stopping.clone().cancelled_owned()),
            _slot: slot,
        }
    }

    fn poll_keep_alive(&mut self, context: &mut Context<'_>) -> Poll<Bytes> {
        std::task::ready!(self.keep_alive.as_mut().poll(context));
        self.rest();
        // The reset timer has to be polled once to wake this task again.
        let _ = self.keep_alive.as_mut().poll(context);
        Poll::Ready(comment("keep-alive"))
    }

    fn rest(&mut self) {
        self.keep_alive.as_mut().reset(Instant::now() + KEEP_ALIVE);
    }
}

impl Body for StreamBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = &mut *self;
        match this.stream.poll_next(context) {
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Ready(Some(event)) => {
                this.rest();
                Poll::Ready(Some(Ok(Frame::data(event))))
            }
            Poll::Pending if this.stopping.as_mut().poll(context).is_ready() => Poll::Ready(None),
            Poll::Pending => this
                .poll_keep_alive(context)
                .map(|comment| Some(Ok(Frame::data(comment)))),
        }
    }
}

impl Drop for StreamBody {
    fn drop(&mut self) {
        self.stream.cut();
    }
}
