//! One request and its response over one connection, driven by the task that waits for them.
//!
//! Invariants: a wait for the first bytes holds no buffer; the rest of a request is written while its response is awaited
//! or read, so that a server which answers early and one which reads everything first are served alike.

use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::buf::Chain;
use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::io::poll_read_buf;

use super::UpstreamStream;
use super::response_head::{self, ResponseHead};
use super::round_trip_error::{INTERIM_RESPONSES_MAX, RoundTripError};
use mooring_usage::TransferShare;

/// Bytes that are read at once while little is expected, over the stack.
const SMALL_READ_BYTES: usize = 8 * 1024;
/// The same while more is expected, into a buffer that becomes the body.
const LARGE_READ_BYTES: usize = 64 * 1024;

/// A request that is being sent, and the bytes of its response that were not taken yet.
pub(super) struct RoundTrip {
    stream: UpstreamStream,
    unsent: Chain<Bytes, Bytes>,
    request: RequestProgress,
    pub(super) received: BytesMut,
    interim_responses: u32,
    /// Whether each of these lets the connection be used again.
    keeps_alive: bool,
    reading: TransferShare,
    writing: TransferShare,
}

/// How far a request was sent.
#[derive(Debug)]
enum RequestProgress {
    /// No byte has left.
    NotBegun,
    /// Some have.
    Begun,
    /// All have.
    Sent,
    /// The rest cannot be written. Its server may have answered before it closed its side.
    Failed {
        is_begun: bool,
        /// Until it is returned.
        error: Option<io::Error>,
    },
}

/// Without the request, which has credentials.
impl fmt::Debug for RoundTrip {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("RoundTrip")
            .field("request", &self.request)
            .finish_non_exhaustive()
    }
}

impl RoundTrip {
    /// Sends nothing yet.
    pub(super) fn new(stream: UpstreamStream, request: Chain<Bytes, Bytes>) -> Self {
        Self {
            stream,
            unsent: request,
            request: RequestProgress::NotBegun,
            received: BytesMut::new(),
            interim_responses: 0,
            keeps_alive: true,
            reading: TransferShare::default(),
            writing: TransferShare::default(),
        }
    }

    /// Whether a byte of the request may have left.
    pub(super) const fn is_begun(&self) -> bool {
        match self.request {
            RequestProgress::NotBegun => false,
            RequestProgress::Begun | RequestProgress::Sent => true,
            RequestProgress::Failed { is_begun, .. } => is_begun,
        }
    }

    /// Sends the request and waits for the head of its response.
    pub(super) async fn receive_head(&mut self) -> Result<ResponseHead, RoundTripError> {
        poll_fn(|context| self.poll_head(context)).await
    }

    fn poll_head(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<ResponseHead, RoundTripError>> {
        loop {
            if !self.received.is_empty() {
                if !self.is_begun() {
                    return Poll::Ready(Err(RoundTripError::Unrequested));
                }
                match response_head::parse(&mut self.received)? {
                    // The response comes after it (RFC 9110, section 15.2).
                    Some(head) if head.is_interim() => {
                        self.note_interim(&head)?;
                        continue;
                    }
                    Some(head) => return Poll::Ready(Ok(head)),
                    None => {}
                }
            }
            // Without an answer, a request that was not written is what failed.
            let received = ready!(self.poll_receive(context, 0));
            received.map_err(|error| self.take_write_error().unwrap_or(error))?;
        }
    }

    fn note_interim(&mut self, head: &ResponseHead) -> Result<(), RoundTripError> {
        self.keeps_alive &= head.keeps_alive;
        self.interim_responses = self.interim_responses.saturating_add(1);
        match self.interim_responses {
            ..=INTERIM_RESPONSES_MAX => Ok(()),
            _ => Err(RoundTripError::TooManyInterim),
        }
    }

    fn take_write_error(&mut self) -> Option<RoundTripError> {
        let RequestProgress::Failed { error, .. } = &mut self.request else {
            return None;
        };
        let error = error.take()?;
        Some(RoundTripError::failed(error, RoundTripError::Write))
    }

    /// Receives more of the response, of which at least `expected` bytes are to come, and sends more of the request.
    /// After a [`TransferShare`] of either it lets other tasks run.
    ///
    /// # Errors
    /// [`RoundTripError::Closed`] at the end of the stream.
    pub(super) fn poll_receive(
        &mut self,
        context: &mut Context<'_>,
        expected: u64,
    ) -> Poll<Result<(), RoundTripError>> {
        self.poll_send(context);
        if self.received.is_empty() {
            // Frees the buffer behind the part that was consumed.
            self.received = BytesMut::new();
        }
        ready!(self.reading.poll_more(context));
        let Poll::Ready(read) = self.poll_read(context, expected) else {
            self.reading.reset();
            return Poll::Pending;
        };
        Poll::Ready(match read {
            Ok(0) => Err(RoundTripError::Closed),
            Ok(length) => {
                self.reading.count(length);
                Ok(())
            }
            Err(error) => Err(RoundTripError::failed(error, RoundTripError::Read)),
        })
    }

    fn poll_read(&mut self, context: &mut Context<'_>, expected: u64) -> Poll<io::Result<usize>> {
        let mut small = [const { MaybeUninit::uninit() }; SMALL_READ_BYTES];
        let mut small = ReadBuf::uninit(&mut small);
        ready!(Pin::new(&mut self.stream).poll_read(context, &mut small))?;
        let length = small.filled().len();
        let expected = usize::try_from(expected).unwrap_or(usize::MAX);
        let more = expected.saturating_sub(length).min(LARGE_READ_BYTES);
        if small.remaining() > 0 || more == 0 {
            self.received.extend_from_slice(small.filled());
            return Poll::Ready(Ok(length));
        }
        // There is probably more.
        self.received.reserve(length.saturating_add(more));
        self.received.extend_from_slice(small.filled());
        let stream = Pin::new(&mut self.stream);
        Poll::Ready(match poll_read_buf(stream, context, &mut self.received) {
            Poll::Ready(Ok(more)) => Ok(length.saturating_add(more)),
            // What was read is not lost; the next read fails too.
            Poll::Ready(Err(_)) | Poll::Pending => Ok(length),
        })
    }

    /// Writes as much of the request as the connection takes, and as others do not wait for.
    fn poll_send(&mut self, context: &mut Context<'_>) {
        if matches!(
            self.request,
            RequestProgress::Sent | RequestProgress::Failed { .. }
        ) {
            return;
        }
        match self.poll_write(context) {
            Poll::Pending => {}
            Poll::Ready(Ok(())) => self.request = RequestProgress::Sent,
            Poll::Ready(Err(error)) => {
                // TLS writes several records at once, of which some may have left.
                self.request = RequestProgress::Failed {
                    is_begun: self.is_begun() || self.stream.is_tls(),
                    error: Some(error),
                };
            }
        }
    }

    fn poll_write(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.unsent.has_remaining() {
            ready!(self.writing.poll_more(context));
            let (head, body) = (self.unsent.first_ref(), self.unsent.last_ref());
            let body = body.get(..TransferShare::BYTES).unwrap_or(body);
            let stream = Pin::new(&mut self.stream);
            let slices = [IoSlice::new(head), IoSlice::new(body)];
            let Poll::Ready(written) = stream.poll_write_vectored(context, &slices) else {
                self.writing.reset();
                return Poll::Pending;
            };
            match written? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => {
                    self.unsent.advance(written);
                    self.writing.count(written);
                    self.request = RequestProgress::Begun;
                }
            }
        }
        Pin::new(&mut self.stream).poll_flush(context)
    }

    /// Whether the rest of the request is being sent.
    pub(super) const fn is_sending(&self) -> bool {
        matches!(
            self.request,
            RequestProgress::NotBegun | RequestProgress::Begun
        )
    }

    /// Sends the rest of the request, or fails to.
    pub(super) async fn finish_sending(&mut self) {
        poll_fn(|context| {
            self.poll_send(context);
            match self.is_sending() {
                true => Poll::Pending,
                false => Poll::Ready(()),
            }
        })
        .await;
    }

    /// The connection for another request, after the response has ended. `None` if it cannot be used for one.
    pub(super) fn into_reusable(self) -> Option<UpstreamStream> {
        let is_sent = matches!(self.request, RequestProgress::Sent);
        (is_sent && self.keeps_alive && self.received.is_empty()).then_some(self.stream)
    }
}
