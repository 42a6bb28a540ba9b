//! A reply's body on its way to the worker that asked: the frames of what the connection answers, as it arrives.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame};

use crate::fleet::FrameEncoder;

/// The frames of a body, after the frame of its head.
pub(super) struct Framed<B> {
    body: B,
    head: Option<Bytes>,
    /// None after the last frame.
    encoder: Option<FrameEncoder>,
}

impl<B> Framed<B> {
    /// `head` is what `encoder` made of the head.
    pub(super) const fn new(head: Bytes, encoder: FrameEncoder, body: B) -> Self {
        Self {
            body,
            head: Some(head),
            encoder: Some(encoder),
        }
    }
}

impl<B> Body for Framed<B>
where
    B: Body<Data = Bytes, Error: std::fmt::Display> + Unpin,
{
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = &mut *self;
        if let Some(head) = this.head.take() {
            return Poll::Ready(Some(Ok(Frame::data(head))));
        }
        loop {
            let Some(mut encoder) = this.encoder.take() else {
                return Poll::Ready(None);
            };
            let arrived = match Pin::new(&mut this.body).poll_frame(context) {
                Poll::Ready(arrived) => arrived,
                Poll::Pending => {
                    this.encoder = Some(encoder);
                    return Poll::Pending;
                }
            };
            let frames = match arrived {
                None => encoder.end(),
                Some(Err(error)) => {
                    tracing::info!(%error, "a reply to another worker broke off");
                    encoder.cut()
                }
                Some(Ok(frame)) => {
                    // Nothing that answers here sends trailers, so they are left out.
                    let frames = frame.into_data().map(|piece| encoder.data(&piece));
                    this.encoder = Some(encoder);
                    frames.unwrap_or_default()
                }
            };
            if !frames.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(frames))));
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.head.is_none() && self.encoder.is_none()
    }
}
