//! Reads whole request bodies, each limited in size and time, and all of a user by its share of the memory for messages.
//!
//! Invariant: what is held of a body is taken from the share of its user, from the first byte read until the last
//! reference is dropped. A body that does not fit is refused and does not wait: bodies that hold parts of the budget
//! while waiting for each other would deadlock.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;

use mooring_protocol::held::guarded_bytes;
use mooring_protocol::{ErrorBody, ErrorKind};
use mooring_usage::{MemoryShare, NoRoom, TransferShare};

/// How long a body may take to arrive: a client that sends it byte by byte must not occupy memory indefinitely.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// Reads request bodies within their limits.
#[derive(Clone, Copy, Debug)]
pub struct RequestBodies {
    /// Most bytes of one body.
    bytes_max: usize,
}

/// Why a body was not read completely.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum RequestBodyError {
    #[error("the body did not arrive within {} s", READ_TIMEOUT.as_secs())]
    TimedOut,
    #[error("at most {0} bytes")]
    TooLarge(usize),
    #[error("{0}")]
    OverBudget(NoRoom),
    #[error("the body broke off")]
    Broken,
}

impl From<RequestBodyError> for ErrorBody<'static> {
    fn from(error: RequestBodyError) -> Self {
        let kind = match error {
            RequestBodyError::TimedOut | RequestBodyError::Broken => ErrorKind::InvalidRequest,
            RequestBodyError::TooLarge(_) => ErrorKind::BodyTooLarge,
            RequestBodyError::OverBudget(_) => ErrorKind::Overloaded,
        };
        ErrorBody::new(kind).detail(error)
    }
}

impl RequestBodies {
    /// Bodies of at most `bytes_max` each.
    #[must_use]
    pub const fn new(bytes_max: usize) -> Self {
        Self { bytes_max }
    }

    /// Reads a whole body, which is charged to `memory` until the last reference to it is dropped.
    ///
    /// # Errors
    /// See [`RequestBodyError`]; the rest of the body is not read.
    pub(super) async fn read(
        &self,
        body: Body,
        memory: &Arc<MemoryShare>,
    ) -> Result<Bytes, RequestBodyError> {
        match tokio::time::timeout(READ_TIMEOUT, self.collect(body, memory)).await {
            Ok(read) => read,
            Err(_) => Err(RequestBodyError::TimedOut),
        }
    }

    async fn collect(
        &self,
        mut body: Body,
        memory: &Arc<MemoryShare>,
    ) -> Result<Bytes, RequestBodyError> {
        let mut held = Arc::clone(memory).hold();
        // Most bodies are one chunk, which needs no copy. Others are copied as they come: a body in chunks of a byte would
        // otherwise take many times its length.
        let mut first = Bytes::new();
        let mut whole: Option<BytesMut> = None;
        let mut share = TransferShare::default();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| RequestBodyError::Broken)?;
            let Ok(chunk) = frame.into_data() else {
                continue;
            };
            if chunk.len() > self.bytes_max.saturating_sub(held.bytes()) {
                return Err(RequestBodyError::TooLarge(self.bytes_max));
            }
            held.try_grow(chunk.len())
                .map_err(RequestBodyError::OverBudget)?;
            share.count(chunk.len());
            match &mut whole {
                Some(whole) => whole.extend_from_slice(&chunk),
                None if first.is_empty() => first = chunk,
                None => {
                    let whole = whole.insert(BytesMut::from(&*first));
                    whole.extend_from_slice(&chunk);
                }
            }
            poll_fn(|context| share.poll_more(context)).await;
        }
        let bytes = whole.map_or(first, BytesMut::freeze);
        Ok(guarded_bytes(bytes, held))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use futures_util::stream;
    use std::convert::Infallible;

    use super::*;
    use mooring_usage::{MemoryBudget, SharePart};

    /// The share of the one user of a budget.
    fn memory(bytes_max: usize) -> Arc<MemoryShare> {
        let patience = || -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> {
            Box::pin(std::future::pending())
        };
        MemoryBudget::new(bytes_max, bytes_max, SharePart::Whole, "test", patience).share()
    }

    fn chunked(chunks: &[&'static str]) -> Body {
        let chunks: Vec<_> = chunks
            .iter()
            .map(|chunk| Ok::<_, Infallible>(Bytes::from_static(chunk.as_bytes())))
            .collect();
        Body::from_stream(stream::iter(chunks))
    }

    #[tokio::test]
    async fn bodies_that_are_held_count_until_the_last_reference_is_gone() {
        let (bodies, memory) = (RequestBodies::new(8), memory(10));
        let first = bodies
            .read(chunked(&["12", "345", "6"]), &memory)
            .await
            .unwrap();
        assert_eq!(first, "123456");
        let part = first.slice(1..2);
        drop(first);
        let refused = bodies.read(chunked(&["1234", "5"]), &memory).await;
        assert!(matches!(refused, Err(RequestBodyError::OverBudget(_))));
        assert_eq!(
            bodies.read(chunked(&["1234"]), &memory).await.unwrap(),
            "1234"
        );
        drop(part);
        assert_eq!(
            bodies.read(chunked(&["12345678"]), &memory).await.unwrap(),
            "12345678"
        );
        assert_eq!(memory.used(), 0);
    }

    #[tokio::test]
    async fn a_body_over_its_own_limit_is_refused_and_gives_back_what_it_held() {
        let (bodies, memory) = (RequestBodies::new(8), memory(10));
        for chunks in [&["123456789"][..], &["12345678", "9"], &["1", "23456789"]] {
            let refused = bodies.read(chunked(chunks), &memory).await;
            assert_eq!(refused, Err(RequestBodyError::TooLarge(8)));
        }
        assert_eq!(bodies.read(Body::empty(), &memory).await.unwrap(), "");
        assert_eq!(memory.used(), 0);
    }
}
