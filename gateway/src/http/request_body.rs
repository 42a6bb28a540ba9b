//! Reads whole request bodies, each limited in size and time, and all together by one budget of bytes.
//!
//! Invariant: the memory of all bodies, from the first byte read until the last reference is dropped, never exceeds the
//! budget. A body that does not fit is refused and does not wait: bodies that hold parts of the budget while waiting
//! for each other would deadlock.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http_body_util::BodyExt;

use mooring_protocol::{ErrorBody, ErrorKind};

/// How long a body may take to arrive: a client that sends it byte by byte must not occupy memory indefinitely.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// Reads request bodies within their limits.
#[derive(Clone, Debug)]
pub struct RequestBodies {
    /// Most bytes of one body.
    bytes_max: usize,
    /// Unused bytes of the budget.
    left: Arc<AtomicUsize>,
}

/// Why a body was not read completely.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum RequestBodyError {
    #[error("the body did not arrive within {} s", READ_TIMEOUT.as_secs())]
    TimedOut,
    #[error("at most {0} bytes")]
    TooLarge(usize),
    #[error("the request bodies that are being read take all of listen.body_budget_bytes")]
    OverBudget,
    #[error("the body broke off")]
    Broken,
}

impl From<RequestBodyError> for ErrorBody<'static> {
    fn from(error: RequestBodyError) -> Self {
        let kind = match error {
            RequestBodyError::TimedOut | RequestBodyError::Broken => ErrorKind::InvalidRequest,
            RequestBodyError::TooLarge(_) => ErrorKind::BodyTooLarge,
            RequestBodyError::OverBudget => ErrorKind::Overloaded,
        };
        ErrorBody::new(kind).detail(error)
    }
}

/// A part of the budget, returned on drop.
#[derive(Debug)]
struct BudgetShare {
    left: Arc<AtomicUsize>,
    bytes: usize,
}

/// A body with its part of the budget.
struct HeldBody {
    bytes: Bytes,
    _share: BudgetShare,
}

impl RequestBodies {
    /// Bodies of at most `bytes_max` each and `budget_bytes` together.
    #[must_use]
    pub fn new(bytes_max: usize, budget_bytes: usize) -> Self {
        Self {
            bytes_max,
            left: Arc::new(AtomicUsize::new(budget_bytes)),
        }
    }

    /// Reads a whole body. Its bytes count towards the budget until the last reference is dropped.
    ///
    /// # Errors
    /// See [`RequestBodyError`]; the rest of the body is not read.
    pub(super) async fn read(&self, body: Body) -> Result<Bytes, RequestBodyError> {
        match tokio::time::timeout(READ_TIMEOUT, self.collect(body)).await {
            Ok(read) => read,
            Err(_) => Err(RequestBodyError::TimedOut),
        }
    }

    async fn collect(&self, mut body: Body) -> Result<Bytes, RequestBodyError> {
        let mut share = BudgetShare {
            left: Arc::clone(&self.left),
            bytes: 0,
        };
        let mut chunks: Vec<Bytes> = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| RequestBodyError::Broken)?;
            let Ok(chunk) = frame.into_data() else {
                continue;
            };
            if chunk.len() > self.bytes_max.saturating_sub(share.bytes) {
                return Err(RequestBodyError::TooLarge(self.bytes_max));
            }
            share.grow(chunk.len())?;
            chunks.push(chunk);
        }
        let bytes = match chunks.as_mut_slice() {
            [only] => std::mem::take(only),
            _ => chunks.concat().into(),
        };
        let _share = share;
        Ok(Bytes::from_owner(HeldBody { bytes, _share }))
    }
}

impl BudgetShare {
    fn grow(&mut self, bytes: usize) -> Result<(), RequestBodyError> {
        self.left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                left.checked_sub(bytes)
            })
            .map_err(|_| RequestBodyError::OverBudget)?;
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for BudgetShare {
    fn drop(&mut self) {
        self.left.fetch_add(self.bytes, Ordering::Relaxed);
    }
}

impl AsRef<[u8]> for HeldBody {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use futures_util::stream;
    use std::convert::Infallible;

    use super::*;

    fn chunked(chunks: &[&'static str]) -> Body {
        let chunks: Vec<_> = chunks
            .iter()
            .map(|chunk| Ok::<_, Infallible>(Bytes::from_static(chunk.as_bytes())))
            .collect();
        Body::from_stream(stream::iter(chunks))
    }

    #[tokio::test]
    async fn bodies_that_are_held_count_until_the_last_reference_is_gone() {
        let bodies = RequestBodies::new(8, 10);
        let first = bodies.read(chunked(&["12", "345", "6"])).await.unwrap();
        assert_eq!(first, "123456");
        let part = first.slice(1..2);
        drop(first);
        let refused = bodies.read(chunked(&["1234", "5"])).await;
        assert_eq!(refused, Err(RequestBodyError::OverBudget));
        assert_eq!(bodies.read(chunked(&["1234"])).await.unwrap(), "1234");
        drop(part);
        assert_eq!(
            bodies.read(chunked(&["12345678"])).await.unwrap(),
            "12345678"
        );
        assert_eq!(bodies.left.load(Ordering::Relaxed), 10);
    }

    #[tokio::test]
    async fn a_body_over_its_own_limit_is_refused_and_gives_back_what_it_held() {
        let bodies = RequestBodies::new(8, 10);
        for chunks in [&["123456789"][..], &["12345678", "9"], &["1", "23456789"]] {
            let refused = bodies.read(chunked(chunks)).await;
            assert_eq!(refused, Err(RequestBodyError::TooLarge(8)));
        }
        assert_eq!(bodies.read(Body::empty()).await.unwrap(), "");
        assert_eq!(bodies.left.load(Ordering::Relaxed), 10);
    }
}
