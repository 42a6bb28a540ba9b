//! The reader of upstream servers' responses, and hyper's.
//!
//! What the reader's sources take from their siblings, which need sockets, has stand-ins here.

#![allow(
    dead_code,
    reason = "of the sources, the parts about requests are not driven"
)]

#[path = "../../upstream/src/http/body.rs"]
mod body;
#[path = "../../upstream/src/http/response_head.rs"]
mod response_head;
#[path = "../../upstream/src/http/round_trip.rs"]
mod round_trip;
#[path = "../../upstream/src/http/round_trip_error.rs"]
mod round_trip_error;

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http::{HeaderMap, Request, StatusCode};
use http_body::Body;
use hyper::client::conn::http1;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::memory::{Connection, poll_to_end};
use round_trip::RoundTrip;
pub use round_trip_error::RoundTripError;

/// A request that both clients send.
const REQUEST: &[u8] = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n";

/// A response that was read to its end.
#[derive(Debug, PartialEq, Eq)]
pub struct WholeResponse {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
}

/// What the gateway's client makes of these bytes, which arrive in pieces of so many bytes.
///
/// # Errors
/// They are no response, or more than one response may have.
pub fn read(bytes: &[u8], piece_bytes: usize) -> Result<WholeResponse, RoundTripError> {
    let stream = UpstreamStream(Connection::new(bytes, piece_bytes));
    let request = Bytes::from_static(REQUEST).chain(Bytes::new());
    let mut round_trip = RoundTrip::new(stream, request);
    let mut receiving = Box::pin(async {
        let head = round_trip.receive_head().await?;
        let pool = Some(idle::OriginPool);
        let (head, body) = body::build_response(round_trip, head, pool).into_parts();
        let whole = collect(body).await?;
        Ok(WholeResponse {
            status: head.status,
            headers: head.headers,
            body: whole,
        })
    });
    poll_to_end(|context| receiving.as_mut().poll(context))
}

/// What hyper makes of them; none if they are no response for it.
pub fn read_with_hyper(bytes: &[u8], piece_bytes: usize) -> Option<WholeResponse> {
    let connection = Connection::new(bytes, piece_bytes);
    let mut handshaking = pin!(http1::handshake(connection));
    let shaken = poll_to_end(|context| handshaking.as_mut().poll(context));
    let (mut sender, connection) = shaken.ok()?;
    let mut connection = pin!(connection);
    let mut is_over = false;
    let mut exchanging = pin!(async {
        let request = Request::post("/").header("host", "a").body(NoBody).ok()?;
        let (head, body) = sender.send_request(request).await.ok()?.into_parts();
        let whole = collect(body).await.ok()?;
        Some(WholeResponse {
            status: head.status,
            headers: head.headers,
            body: whole,
        })
    });
    poll_to_end(|context| {
        if !is_over {
            is_over = connection.as_mut().poll(context).is_ready();
        }
        exchanging.as_mut().poll(context)
    })
}

async fn collect<B: Body<Data = Bytes>>(body: B) -> Result<Bytes, B::Error> {
    let mut body = pin!(body);
    let mut whole = Vec::new();
    while let Some(frame) = poll_fn(|context| body.as_mut().poll_frame(context)).await {
        if let Ok(data) = frame?.into_data() {
            whole.extend_from_slice(&data);
        }
    }
    Ok(whole.into())
}

struct NoBody;

impl Body for NoBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Self::Error>>> {
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        true
    }
}

mod idle {
    use super::UpstreamStream;

    #[derive(Debug)]
    pub(super) struct OriginPool;

    impl OriginPool {
        pub(super) fn give_back(&self, _: UpstreamStream) {}

        pub(super) fn distrust(&self) {}
    }
}

struct UpstreamStream(Connection);

impl UpstreamStream {
    const fn is_tls(&self) -> bool {
        false
    }
}

impl AsyncRead for UpstreamStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        AsyncRead::poll_read(Pin::new(&mut self.0), context, buffer)
    }
}

impl AsyncWrite for UpstreamStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        AsyncWrite::poll_write(Pin::new(&mut self.0), context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
