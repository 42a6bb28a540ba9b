//! The body of a response, read as it is polled.
//!
//! Invariants: it ends without an error only if it is whole; its connection is given back with its last byte at the
//! earliest, and closed if it is dropped before.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use http::Response;
use http_body::{Body, Frame, SizeHint};
use httparse::{EMPTY_HEADER, Status, parse_chunk_size, parse_headers};
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::idle::OriginPool;
use super::response_head::{BodyFraming, ResponseHead};
use super::round_trip::RoundTrip;
use super::round_trip_error::RoundTripError;

/// Longest line before a chunk, with its extensions, in bytes.
const CHUNK_LINE_BYTES_MAX: usize = 4 * 1024;
/// Most trailers after the last chunk.
const TRAILERS_MAX: usize = 100;
/// Largest trailer section, in bytes.
const TRAILER_BYTES_MAX: usize = 16 * 1024;

/// How long a server may take to read the rest of a request that it has answered.
const REST_WITHIN: Duration = Duration::from_secs(30);

/// What happens to the connection after the body.
#[derive(Debug)]
enum AfterBody {
    Close,
    /// The server answered before it had read the whole request, and keeps the connection open: it gets the rest. Then
    /// the connection is closed, because the answer may have been to an earlier request.
    FinishRequest,
    /// It is kept for other requests.
    GiveBack(OriginPool),
}

/// A body that is complete, or arriving.
#[derive(Debug)]
pub(crate) struct ResponseBody(BodyState);

#[derive(Debug)]
enum BodyState {
    /// It arrived with its head.
    Whole(Bytes),
    /// More of it has to be read.
    Arriving(Box<ArrivingBody>),
    /// All of it was read, or it failed.
    Ended,
}

#[derive(Debug)]
struct ArrivingBody {
    round_trip: RoundTrip,
    decoder: BodyDecoder,
    /// Data that arrived with the head and was not read yet.
    first: Result<Bytes, RoundTripError>,
    after: AfterBody,
}

/// The response with this head. `pool` is where its connection may go.
pub(super) fn build_response(
    mut round_trip: RoundTrip,
    head: ResponseHead,
    pool: Option<OriginPool>,
) -> Response<ResponseBody> {
    let after = match pool {
        _ if !head.keeps_alive => AfterBody::Close,
        _ if round_trip.is_sending() => AfterBody::FinishRequest,
        Some(pool) => AfterBody::GiveBack(pool),
        None => AfterBody::Close,
    };
    let mut decoder = BodyDecoder::new(head.framing);
    let state = match decoder.decode(&mut round_trip.received) {
        Ok(whole) if decoder.is_done() => {
            after.apply(round_trip);
            BodyState::Whole(whole)
        }
        first => BodyState::Arriving(Box::new(ArrivingBody {
            round_trip,
            decoder,
            first,
            after,
        })),
    };
    let mut response = Response::new(ResponseBody(state));
    *response.status_mut() = head.status;
    *response.headers_mut() = head.headers;
    response
}

impl AfterBody {
    /// Closes the connection or returns it to the pool, after the whole body.
    fn apply(self, mut round_trip: RoundTrip) {
        match self {
            Self::Close => {}
            Self::FinishRequest => {
                if let Ok(runtime) = Handle::try_current() {
                    runtime.spawn(async move {
                        // If it does not read the rest, it does without.
                        let _ = timeout(REST_WITHIN, round_trip.finish_sending()).await;
                    });
                }
            }
            Self::GiveBack(pool) => {
                if let Some(stream) = round_trip.into_reusable() {
                    pool.give_back(stream);
                }
            }
        }
    }
}

impl ArrivingBody {
    fn poll_data(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, RoundTripError>>> {
        let first = std::mem::replace(&mut self.first, Ok(Bytes::new()))?;
        if !first.is_empty() {
            return Poll::Ready(Some(Ok(first)));
        }
        loop {
            let data = self.decoder.decode(&mut self.round_trip.received)?;
            if !data.is_empty() {
                return Poll::Ready(Some(Ok(data)));
            }
            if self.decoder.is_done() {
                return Poll::Ready(None);
            }
            let expected = self.decoder.expected();
            match ready!(self.round_trip.poll_receive(context, expected)) {
                Ok(()) => {}
                Err(RoundTripError::Closed) if matches!(self.decoder, BodyDecoder::UntilClose) => {
                    return Poll::Ready(None);
                }
                Err(failure) => {
                    if let (RoundTripError::HostSilent, AfterBody::GiveBack(pool)) =
                        (&failure, &self.after)
                    {
                        pool.distrust();
                    }
                    return Poll::Ready(Some(Err(failure)));
                }
            }
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = RoundTripError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RoundTripError>>> {
        let state = &mut self.0;
        let (data, is_ended) = match state {
            BodyState::Ended => return Poll::Ready(None),
            BodyState::Whole(whole) => (Some(Ok(std::mem::take(whole))), true),
            BodyState::Arriving(body) => {
                let data = ready!(body.poll_data(context));
                let is_ended = match &data {
                    Some(Ok(_)) => body.decoder.is_done(),
                    Some(Err(_)) | None => true,
                };
                (data, is_ended)
            }
        };
        if is_ended
            && let BodyState::Arriving(body) = std::mem::replace(state, BodyState::Ended)
            && !matches!(data, Some(Err(_)))
        {
            body.after.apply(body.round_trip);
        }
        let data = data.filter(|data| !matches!(data, Ok(data) if data.is_empty()));
        Poll::Ready(data.map(|data| data.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            BodyState::Ended => true,
            BodyState::Whole(whole) => whole.is_empty(),
            BodyState::Arriving(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            BodyState::Ended => SizeHint::with_exact(0),
            BodyState::Whole(whole) => SizeHint::with_exact(whole.len() as u64),
            BodyState::Arriving(body) => match body.decoder {
                BodyDecoder::Length(left) => {
                    let first = body.first.as_ref().map_or(0, Bytes::len);
                    SizeHint::with_exact(left.saturating_add(first as u64))
                }
                BodyDecoder::Chunked(_) | BodyDecoder::UntilClose => SizeHint::default(),
            },
        }
    }
}

/// Takes the body out of the bytes on the connection.
#[derive(Debug)]
enum BodyDecoder {
    /// So many bytes are to come.
    Length(u64),
    Chunked(ChunkPart),
    UntilClose,
}

/// What comes next in a chunked body (RFC 9112, section 7.1).
#[derive(Clone, Copy, Debug)]
enum ChunkPart {
    /// The line with its size.
    Size,
    /// So many bytes of it.
    Data(u64),
    /// The end of the line after it.
    DataEnd,
    /// The trailer section.
    Trailers,
    /// Nothing.
    End,
    /// An invalid chunk, after data that was returned.
    Invalid,
}

impl BodyDecoder {
    const fn new(framing: BodyFraming) -> Self {
        match framing {
            BodyFraming::Length(length) => Self::Length(length),
            BodyFraming::Chunked => Self::Chunked(ChunkPart::Size),
            BodyFraming::UntilClose => Self::UntilClose,
        }
    }

    const fn is_done(&self) -> bool {
        matches!(self, Self::Length(0) | Self::Chunked(ChunkPart::End))
    }

    /// How many bytes of data are certainly to come.
    const fn expected(&self) -> u64 {
        match self {
            Self::Length(left) | Self::Chunked(ChunkPart::Data(left)) => *left,
            Self::Chunked(_) | Self::UntilClose => 0,
        }
    }

    /// The data among the bytes that were received. Chunks that arrived together are returned together.
    fn decode(&mut self, received: &mut BytesMut) -> Result<Bytes, RoundTripError> {
        match self {
            Self::Length(left) => Ok(take_data(received, left)),
            Self::UntilClose => Ok(received.split().freeze()),
            Self::Chunked(part) => {
                let mut data = ChunkData::default();
                loop {
                    *part = match part.take(received, &mut data) {
                        Ok(Some(next)) => next,
                        Ok(None) => return Ok(data.into_bytes()),
                        Err(error) if data.is_empty() => return Err(error),
                        Err(_) => {
                            *part = ChunkPart::Invalid;
                            return Ok(data.into_bytes());
                        }
                    };
                }
            }
        }
    }
}

/// Takes up to `left` bytes.
fn take_data(received: &mut BytesMut, left: &mut u64) -> Bytes {
    let length = usize::try_from(*left).map_or(received.len(), |left| left.min(received.len()));
    *left = left.saturating_sub(length as u64);
    received.split_to(length).freeze()
}

/// Takes whole lines. The parser lets a line feed alone end one or stand in one, so that another reader on the way could
/// find another end (RFC 9112, section 11.1).
fn take_lines(received: &mut BytesMut, length: usize) -> Result<(), RoundTripError> {
    let mut before = 0;
    for byte in received.split_to(length) {
        if byte == b'\n' && before != b'\r' {
            return Err(RoundTripError::Chunk);
        }
        before = byte;
    }
    Ok(())
}

impl ChunkPart {
    /// Takes this part off the bytes; returns the next one, or `None` if more bytes are needed or none are.
    fn take(
        self,
        received: &mut BytesMut,
        data: &mut ChunkData,
    ) -> Result<Option<Self>, RoundTripError> {
        match self {
            // The parser takes a line without digits for a size of 0.
            Self::Size
                if received
                    .first()
                    .is_some_and(|byte| !byte.is_ascii_hexdigit()) =>
            {
                Err(RoundTripError::Chunk)
            }
            Self::Size => match parse_chunk_size(received) {
                Ok(Status::Complete((length, size))) if length <= CHUNK_LINE_BYTES_MAX => {
                    take_lines(received, length)?;
                    Ok(Some(match size {
                        0 => Self::Trailers,
                        size => Self::Data(size),
                    }))
                }
                Ok(Status::Partial) if received.len() <= CHUNK_LINE_BYTES_MAX => Ok(None),
                Ok(_) | Err(_) => Err(RoundTripError::Chunk),
            },
            Self::Data(mut left) => {
                if received.is_empty() {
                    return Ok(None);
                }
                data.push(take_data(received, &mut left));
                Ok(Some(match left {
                    0 => Self::DataEnd,
                    left => Self::Data(left),
                }))
            }
            Self::DataEnd => match received.get(..2) {
                Some(b"\r\n") => {
                    received.advance(2);
                    Ok(Some(Self::Size))
                }
                Some(_) => Err(RoundTripError::Chunk),
                None => Ok(None),
            },
            Self::Trailers => match parse_headers(received, &mut [EMPTY_HEADER; TRAILERS_MAX]) {
                Ok(Status::Complete((length, _))) if length <= TRAILER_BYTES_MAX => {
                    take_lines(received, length)?;
                    Ok(Some(Self::End))
                }
                Ok(Status::Partial) if received.len() <= TRAILER_BYTES_MAX => Ok(None),
                Ok(_) | Err(_) => Err(RoundTripError::Chunk),
            },
            Self::End => Ok(None),
            Self::Invalid => Err(RoundTripError::Chunk),
        }
    }
}

/// The data of chunks that arrived together: one is not copied, several are joined.
#[derive(Default)]
struct ChunkData {
    first: Bytes,
    joined: BytesMut,
}

impl ChunkData {
    fn is_empty(&self) -> bool {
        self.first.is_empty() && self.joined.is_empty()
    }

    fn push(&mut self, data: Bytes) {
        if self.is_empty() {
            self.first = data;
            return;
        }
        if self.joined.is_empty() {
            self.joined
                .extend_from_slice(&std::mem::take(&mut self.first));
        }
        self.joined.extend_from_slice(&data);
    }

    fn into_bytes(self) -> Bytes {
        if self.joined.is_empty() {
            self.first
        } else {
            self.joined.freeze()
        }
    }
}
