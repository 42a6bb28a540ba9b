//! The unread rest of a request's body when its answer is ready: usually nothing, but a refusal comes before the body
//! is read.
//!
//! Invariant: a client has sent a small body whole before it gets its answer, so that HTTP/2 need not reset its stream, and
//! HTTP/1 can keep the connection. Otherwise the answer says that the connection closes.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::header::{CONNECTION, EXPECT};
use http::{HeaderValue, Request, Response, Version};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

/// Most bytes that are read only to be dropped.
const DROPPED_BYTES_MAX: usize = 64 * 1024;
/// How long the answer waits for them.
const DROPPED_WITHIN: Duration = Duration::from_secs(1);

/// Where the reader of a body leaves what it has not read.
type Remainder = Arc<Mutex<Option<Incoming>>>;

/// The rest of one request's body.
pub(super) struct UnreadBody {
    remainder: Remainder,
    version: Version,
    /// Whether the client waits with the body until it is asked for it.
    expects_continue: bool,
}

impl UnreadBody {
    /// The same request with a body whose rest comes back.
    pub(super) fn watch(request: Request<Incoming>) -> (Request<Body>, Self) {
        let remainder = Remainder::default();
        let unread = Self {
            remainder: Arc::clone(&remainder),
            version: request.version(),
            expects_continue: request.headers().contains_key(EXPECT),
        };
        let watched = request.map(|body| match body.is_end_stream() {
            true => Body::empty(),
            false => Body::new(WatchedBody {
                body: Some(body),
                remainder,
            }),
        });
        (watched, unread)
    }

    /// Reads the rest, if it is small, before the answer. A connection that cannot go on is closed with it.
    pub(super) async fn read_before(self, mut answer: Response<Body>) -> Response<Body> {
        let rest = lock(&self.remainder).take();
        if let Some(rest) = rest
            && (self.expects_continue || !Box::pin(drop_all(rest)).await)
            && self.version < Version::HTTP_2
        {
            let close = HeaderValue::from_static("close");
            answer.headers_mut().insert(CONNECTION, close);
        }
        answer
    }
}

/// Reads the body to its end, within the limits. Whether it has ended.
async fn drop_all(mut body: Incoming) -> bool {
    let limit = u64::try_from(DROPPED_BYTES_MAX).unwrap_or(u64::MAX);
    if body.size_hint().lower() > limit {
        return false;
    }
    let reading = async {
        let mut left = DROPPED_BYTES_MAX;
        while let Some(frame) = body.frame().await {
            let length = match frame.map(Frame::into_data) {
                Ok(Ok(data)) => data.len(),
                Ok(Err(_trailers)) => 0,
                Err(_broken) => return false,
            };
            match left.checked_sub(length) {
                Some(rest) => left = rest,
                None => return false,
            }
        }
        true
    };
    tokio::time::timeout(DROPPED_WITHIN, reading)
        .await
        .unwrap_or(false)
}

/// A body that its reader may drop before its end.
struct WatchedBody {
    /// None once it has ended.
    body: Option<Incoming>,
    remainder: Remainder,
}

impl http_body::Body for WatchedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Some(body) = &mut self.body else {
            return Poll::Ready(None);
        };
        let frame = std::task::ready!(Pin::new(body).poll_frame(context));
        if !matches!(frame, Some(Ok(_))) {
            self.body = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Incoming::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        (self.body.as_ref()).map_or(SizeHint::with_exact(0), Incoming::size_hint)
    }
}

impl Drop for WatchedBody {
    fn drop(&mut self) {
        let rest = self.body.take().filter(|body| !body.is_end_stream());
        if rest.is_some() {
            *lock(&self.remainder) = rest;
        }
    }
}

fn lock(remainder: &Remainder) -> std::sync::MutexGuard<'_, Option<Incoming>> {
    remainder.lock().unwrap_or_else(PoisonError::into_inner)
}
