//! Tracks what a client connection is waiting for, and since when.
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
use tokio_util::sync::CancellationToken;

use super::head_lines::HeadLines;
use mooring_router::Departure;

/// The activity of one connection.
#[derive(Debug)]
pub(super) struct ConnectionActivity {
    header_timeout: Duration,
    idle_timeout: Duration,
    /// The connection's own token of the gateway's stop, which no other thread locks.
    stopping: CancellationToken,
    departure: Departure,
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
    /// The activity of a connection that was just accepted, by a gateway that may be `stopping`.
    pub(super) fn begin(
        header_timeout: Duration,
        idle_timeout: Duration,
        stopping: &CancellationToken,
        departure: &Departure,
    ) -> Arc<Self> {
        Arc::new(Self {
            header_timeout,
            idle_timeout,
            stopping: stopping.child_token(),
            departure: departure.clone(),
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
        state.lines = HeadLines::default();
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

    /// Waits for the gateway to stop, and until the connection may be closed: at once with HTTP/2, which tells the client what
    /// was served (GOAWAY, RFC 9113, 6.8), else once nothing was received for `grace` after the stop. A request that is
    /// open, or whose head was partly received, is waited for.
    pub(super) async fn closable(&self, grace: Duration) {
        self.stopping.cancelled().await;
        let begun = Instant::now();
        loop {
            let at = {
                let state = self.state();
                if state.is_multiplexed {
                    return;
                }
                match state.requests_open == 0 && !state.lines.is_partial() {
                    true => state.since.max(begun) + grace,
                    false => Instant::now() + grace,
                }
            };
            if at <= Instant::now() {
                return;
            }
            sleep_until(at).await;
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

impl OpenRequest {
    /// Whether the reply has to tell the client that the connection is closed.
    pub(super) fn is_last(&self) -> bool {
        self.0.departure.is_leaving() || self.0.stopping.is_cancelled()
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

    fn begun(stopping: &CancellationToken) -> Arc<ConnectionActivity> {
        let departure = Departure::default();
        ConnectionActivity::begin(HEADER_TIMEOUT, IDLE_TIMEOUT, stopping, &departure)
    }

    /// The time until this connection is overdue, and the reason.
    async fn overdue(activity: &ConnectionActivity) -> (Duration, &'static str) {
        let begun = Instant::now();
        let what = activity.overdue().await;
        (begun.elapsed(), what)
    }

    #[tokio::test(start_paused = true)]
    async fn a_first_head_has_its_time_however_much_of_it_comes() {
        let activity = begun(&CancellationToken::new());
        activity.note_read(b"GET /").unwrap();
        let (after, what) = overdue(&activity).await;
        assert_eq!(after.as_secs(), HEADER_TIMEOUT.as_secs());
        assert!(what.contains("head"), "{what}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_open_request_is_never_overdue_and_an_idle_connection_is() {
        let activity = begun(&CancellationToken::new());
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

    /// The time until this connection of a stopping gateway may be closed.
    async fn closable(activity: &ConnectionActivity, grace: Duration) -> Duration {
        let begun = Instant::now();
        let limit = HEADER_TIMEOUT * 10;
        let _ = tokio::time::timeout(limit, activity.closable(grace)).await;
        begun.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_stop_waits_for_requests_and_for_a_grace_in_which_nothing_comes() {
        const GRACE: Duration = Duration::from_millis(500);
        let never = HEADER_TIMEOUT * 10;
        let stopping = CancellationToken::new();
        let activity = begun(&stopping);
        assert_eq!(closable(&activity, GRACE).await, never, "no stop");
        assert!(!activity.open_request(Version::HTTP_11).is_last());
        stopping.cancel();
        assert!(activity.open_request(Version::HTTP_11).is_last());
        assert_eq!(closable(&activity, GRACE).await, GRACE, "idle");
        activity.note_read(b"GET / HTTP/1.1\r\n").unwrap();
        assert_eq!(closable(&activity, GRACE).await, never, "half a head");
        let request = activity.open_request(Version::HTTP_11);
        assert_eq!(closable(&activity, GRACE).await, never, "an open request");
        drop(request);
        assert_eq!(closable(&activity, GRACE).await, GRACE, "idle again");
        drop(activity.open_request(Version::HTTP_2));
        assert_eq!(closable(&activity, GRACE).await, Duration::ZERO, "HTTP/2");
    }

    #[tokio::test(start_paused = true)]
    async fn a_half_sent_later_head_is_not_waited_for_as_an_idle_connection_is() {
        let activity = begun(&CancellationToken::new());
        drop(activity.open_request(Version::HTTP_11));
        sleep(Duration::from_secs(5)).await;
        activity.note_read(b"GET /").unwrap();
        let (after, what) = overdue(&activity).await;
        assert!(after <= HEADER_TIMEOUT * 2, "{after:?}");
        assert!(what.contains("head"), "{what}");
    }
}
