//! What a client connection is waiting for, and since when.
//!
//! Invariant: nothing is overdue while a request is open. Otherwise the connection either waits for the rest of a
//! partly received head (for the first head from the start), or is idle.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::Version;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, sleep, sleep_until};

use super::head_lines::HeadLines;

/// The activity of one connection.
#[derive(Debug)]
pub(super) struct ConnectionActivity {
    header_timeout: Duration,
    idle_timeout: Duration,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    requests_open: usize,
    /// Whether a head may have been partly received.
    is_in_head: bool,
    /// With HTTP/2, data between requests is not necessarily a head.
    is_multiplexed: bool,
    /// Start of the wait for the head, or of the idle time.
    since: Instant,
    /// Checks the line ends of the head.
    lines: HeadLines,
}

/// An open request, until it is dropped.
#[derive(Debug)]
pub(super) struct OpenRequest(Arc<ConnectionActivity>);

impl ConnectionActivity {
    /// The activity of a connection that was just accepted.
    pub(super) fn begin(header_timeout: Duration, idle_timeout: Duration) -> Arc<Self> {
        Arc::new(Self {
            header_timeout,
            idle_timeout,
            state: Mutex::new(State {
                requests_open: 0,
                is_in_head: true,
                is_multiplexed: false,
                since: Instant::now(),
                lines: HeadLines::default(),
            }),
        })
    }

    /// A complete head was received.
    pub(super) fn open_request(self: &Arc<Self>, version: Version) -> OpenRequest {
        let mut state = self.state();
        state.requests_open += 1;
        state.is_in_head = false;
        state.is_multiplexed = version == Version::HTTP_2;
        OpenRequest(Arc::clone(self))
    }

    /// Waits until the connection is overdue, and returns why. Heads after the first may take up to twice the limit,
    /// because idle connections are checked no more often.
    pub(super) async fn overdue(&self) -> &'static str {
        loop {
            let Some((at, what)) = self.deadline() else {
                sleep(self.header_timeout).await;
                continue;
            };
            let now = Instant::now();
            if at <= now {
                return what;
            }
            sleep_until(at.min(now + self.header_timeout)).await;
        }
    }

    fn deadline(&self) -> Option<(Instant, &'static str)> {
        let state = self.state();
        match (state.requests_open, state.is_in_head) {
            (0, true) => Some((
                state.since + self.header_timeout,
                "the head did not arrive in time",
            )),
            (0, false) => Some((state.since + self.idle_timeout, "idle for too long")),
            _ => None,
        }
    }

    /// Records received bytes.
    fn note_read(&self, read: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        if state.requests_open > 0 || state.is_multiplexed {
            return Ok(());
        }
        if !state.is_in_head {
            state.is_in_head = true;
            state.since = Instant::now();
            state.lines = HeadLines::default();
        }
        state.lines.check(read)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.requests_open = state.requests_open.saturating_sub(1);
        state.since = Instant::now();
    }
}

/// A stream whose reads are recorded.
#[derive(Debug)]
pub(super) struct TrackedStream<S> {
    stream: S,
    activity: Arc<ConnectionActivity>,
}

impl<S> TrackedStream<S> {
    pub(super) fn new(stream: S, activity: Arc<ConnectionActivity>) -> Self {
        Self { stream, activity }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TrackedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        let read = buffer.filled().get(before..).unwrap_or_default();
        Poll::Ready(self.activity.note_read(read))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TrackedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
    const IDLE_TIMEOUT: Duration = Duration::from_secs(75);

    /// The time until this connection is overdue, and the reason.
    async fn overdue(activity: &ConnectionActivity) -> (Duration, &'static str) {
        let begun = Instant::now();
        let what = activity.overdue().await;
        (begun.elapsed(), what)
    }

    #[tokio::test(start_paused = true)]
    async fn a_first_head_has_its_time_however_much_of_it_comes() {
        let activity = ConnectionActivity::begin(HEADER_TIMEOUT, IDLE_TIMEOUT);
        activity.note_read(b"GET /").unwrap();
        let (after, what) = overdue(&activity).await;
        assert_eq!(after.as_secs(), HEADER_TIMEOUT.as_secs());
        assert!(what.contains("head"), "{what}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_open_request_is_never_overdue_and_an_idle_connection_is() {
        let activity = ConnectionActivity::begin(HEADER_TIMEOUT, IDLE_TIMEOUT);
        let (first, second) = (
            activity.open_request(Version::HTTP_2),
            activity.open_request(Version::HTTP_2),
        );
        drop(first);
        let waited = tokio::time::timeout(IDLE_TIMEOUT * 10, activity.overdue());
        assert!(waited.await.is_err());
        drop(second);
        // A frame that belongs to no request, such as a ping, is not a head.
        activity.note_read(b"GET /").unwrap();
        let (after, what) = overdue(&activity).await;
        assert_eq!(after.as_secs(), IDLE_TIMEOUT.as_secs());
        assert!(what.contains("idle"), "{what}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_half_sent_later_head_is_not_waited_for_as_an_idle_connection_is() {
        let activity = ConnectionActivity::begin(HEADER_TIMEOUT, IDLE_TIMEOUT);
        drop(activity.open_request(Version::HTTP_11));
        sleep(Duration::from_secs(5)).await;
        activity.note_read(b"GET /").unwrap();
        let (after, what) = overdue(&activity).await;
        assert!(after <= HEADER_TIMEOUT * 2, "{after:?}");
        assert!(what.contains("head"), "{what}");
    }
}
