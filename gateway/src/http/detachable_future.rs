//! A future that runs to completion even if its caller drops it.
//!
//! Invariant: while its caller waits, it runs in the caller's task, which saves a task for every request; if it is
//! dropped before completion, it continues in a task of its own. A panic in it does not reach the caller.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::FutureExt;
use futures_util::future::CatchUnwind;
use mooring_usage::for_same_user;
use tokio::runtime::Handle;

/// Detaches when it is dropped before its end: see the module.
pub(super) struct DetachableFuture<F: Future<Output: Send> + Send + 'static>(
    Option<Pin<Box<CatchUnwind<AssertUnwindSafe<F>>>>>,
);

impl<F: Future<Output: Send> + Send + 'static> DetachableFuture<F> {
    pub(super) fn new(future: F) -> Self {
        Self(Some(Box::pin(AssertUnwindSafe(future).catch_unwind())))
    }
}

impl<F: Future<Output: Send> + Send + 'static> Future for DetachableFuture<F> {
    /// `None` if the future panicked.
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(future) = &mut self.0 else {
            return Poll::Ready(None);
        };
        let ended = std::task::ready!(future.as_mut().poll(context));
        self.0 = None;
        Poll::Ready(ended.ok())
    }
}

impl<F: Future<Output: Send> + Send + 'static> Drop for DetachableFuture<F> {
    fn drop(&mut self) {
        // Without a runtime the process is stopping.
        if let (Some(future), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn(for_same_user(future));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::panic,
        reason = "a test fails by panicking"
    )]
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn it_goes_on_without_its_caller() {
        let (go, gone) = oneshot::channel::<u32>();
        let (said, heard) = oneshot::channel();
        let mut future = Box::pin(DetachableFuture::new(async move {
            said.send(gone.await.unwrap()).unwrap();
        }));
        assert!(futures_util::poll!(future.as_mut()).is_pending());
        drop(future);
        go.send(7).unwrap();
        assert_eq!(heard.await, Ok(7));
    }

    #[tokio::test]
    async fn a_panic_ends_it_alone() {
        let ended = DetachableFuture::new(async { panic!("in the test") }).await;
        assert_eq!(ended, None::<()>);
        assert_eq!(DetachableFuture::new(async { 7 }).await, Some(7));
    }
}
