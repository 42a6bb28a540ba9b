//! A reply's body as it comes from another worker.
//!
//! Invariant: every byte given out is one that the other worker sent as this reply, in its place. A body that ends without
//! an error is whole.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame as BodyFrame};
use hyper::body::Incoming;

use crate::fleet::{Frame, FrameDecoder, FrameError, ReplyHead};

/// The body of another worker's reply. Dropping it closes the connection where the reply is still under way, by which the
/// other worker sees that nobody listens any more.
pub struct PeerBody {
    incoming: Incoming,
    decoder: FrameDecoder,
    ended: bool,
}

/// Why a body ends before it is whole.
#[derive(Debug, thiserror::Error)]
pub enum PeerBodyError {
    /// The connection between the workers broke.
    #[error("the connection to the other worker broke")]
    Broken(#[source] hyper::Error),
    /// The connection ended properly, and the reply did not.
    #[error("the other worker's reply was cut short")]
    Truncated,
    /// The other worker says that the reply broke off where it comes from.
    #[error("the reply broke off at the worker that holds the connection")]
    Cut,
    /// What came is not what the other worker sent.
    #[error("the other worker's reply is not authentic")]
    Forged(#[source] FrameError),
}

impl PeerBody {
    /// `decoder` is that of the request that this answers.
    pub(super) const fn new(incoming: Incoming, decoder: FrameDecoder) -> Self {
        Self {
            incoming,
            decoder,
            ended: false,
        }
    }

    /// Reads how the reply begins.
    pub(super) async fn head(&mut self) -> Result<ReplyHead, PeerBodyError> {
        match std::future::poll_fn(|context| self.poll_next(context)).await? {
            Some(Frame::Head(head)) => Ok(head),
            // The decoder lets nothing else come first.
            Some(_) | None => Err(PeerBodyError::Truncated),
        }
    }

    /// The next frame; none after the last one, when the other worker has ended the HTTP body too, so that the connection
    /// can be used again.
    fn poll_next(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<Frame>, PeerBodyError>> {
        loop {
            match self.decoder.take_frame().map_err(PeerBodyError::Forged)? {
                Some(Frame::Cut) => return Poll::Ready(Err(PeerBodyError::Cut)),
                Some(Frame::End) => {}
                Some(frame) => return Poll::Ready(Ok(Some(frame))),
                None => match ready!(Pin::new(&mut self.incoming).poll_frame(context)) {
                    Some(Ok(arrived)) => {
                        if let Ok(bytes) = arrived.into_data() {
                            self.decoder.push(&bytes);
                        }
                    }
                    // After the last frame nothing is missing, however the connection ends.
                    Some(Err(_)) | None if self.decoder.has_ended() => {
                        return Poll::Ready(Ok(None));
                    }
                    Some(Err(error)) => return Poll::Ready(Err(PeerBodyError::Broken(error))),
                    None => return Poll::Ready(Err(PeerBodyError::Truncated)),
                },
            }
        }
    }
}

impl Body for PeerBody {
    type Data = Bytes;
    type Error = PeerBodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<BodyFrame<Bytes>, PeerBodyError>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let next = ready!(self.poll_next(context));
        Poll::Ready(match next {
            Ok(Some(Frame::Data(piece))) => Some(Ok(BodyFrame::data(piece))),
            Ok(Some(Frame::Head(_) | Frame::Cut | Frame::End) | None) => {
                self.ended = true;
                None
            }
            Err(error) => {
                self.ended = true;
                Some(Err(error))
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        self.ended
    }
}

impl fmt::Debug for PeerBody {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("PeerBody")
    }
}
