//! The events that a client has not read yet.
//!
//! Invariant: they are bounded in number and bytes, and take the memory of the client's user: a long event brings what it
//! takes, and others take theirs here beyond the first [`SHORT_BYTES_MAX`] bytes. Writers wait for room; if the client reads
//! nothing for [`UNREAD_WITHIN`] meanwhile, the stream ends and unread events are discarded.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::Instant;

use mooring_protocol::held::guarded_bytes;
use mooring_usage::{MemoryShare, SHORT_BYTES_MAX};

/// Most queued events.
const EVENTS_MAX: usize = 1024;
/// Most bytes of queued events. A single event may be longer; it is then queued alone.
const BYTES_MAX: usize = 4 * 1024 * 1024;
/// Length from which on an event has taken memory where it was read. A read brings as much at once before it does.
const OWN_MEMORY_BYTES_MIN: usize = 3 * SHORT_BYTES_MAX;
/// How long a client may read nothing while the queue is full.
const UNREAD_WITHIN: Duration = Duration::from_secs(30);

/// The stream has ended: nothing can be written any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum StreamOver {
    /// It had ended before.
    #[error("the client's stream is over")]
    Before,
    /// It ends now: the client does not read.
    #[error("the client has read nothing for {} s", UNREAD_WITHIN.as_secs())]
    Unread,
}

/// The queue of events to one client.
#[derive(Debug)]
pub(super) struct Queue {
    state: Mutex<State>,
    /// Notified whenever there may be room.
    room: Notify,
    memory: Arc<MemoryShare>,
}

#[derive(Debug)]
struct State {
    events: VecDeque<Bytes>,
    bytes: usize,
    is_over: bool,
    taken_at: Instant,
    reader: Option<Waker>,
}

enum PushOutcome {
    Yes,
    NoRoom { unread: Duration },
}

impl Queue {
    /// An empty queue, whose events take this memory.
    pub(super) fn new(memory: Arc<MemoryShare>) -> Self {
        Self {
            state: Mutex::new(State {
                events: VecDeque::new(),
                bytes: 0,
                is_over: false,
                taken_at: Instant::now(),
                reader: None,
            }),
            room: Notify::new(),
            memory,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every statement leaves the state consistent, so the guard of a poisoned lock is safe to use.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues one event, waiting until there is room.
    ///
    /// # Errors
    /// If the stream has ended, or is ended now because the client does not read.
    pub(super) async fn push(&self, event: Bytes) -> Result<(), StreamOver> {
        loop {
            let room = self.room.notified();
            let unread = match self.try_push(&event)? {
                PushOutcome::Yes => return Ok(()),
                PushOutcome::NoRoom { unread } => unread,
            };
            let Some(patience) = UNREAD_WITHIN
                .checked_sub(unread)
                .filter(|patience| !patience.is_zero())
            else {
                self.cut();
                return Err(StreamOver::Unread);
            };
            // Whether notified or timed out, the next iteration checks for room.
            let _ = tokio::time::timeout(patience, room).await;
        }
    }

    fn try_push(&self, event: &Bytes) -> Result<PushOutcome, StreamOver> {
        let mut state = self.lock();
        if state.is_over {
            return Err(StreamOver::Before);
        }
        let has_room = state.events.is_empty()
            || (state.events.len() < EVENTS_MAX
                && state.bytes.saturating_add(event.len()) <= BYTES_MAX);
        let queued = state.bytes.saturating_add(event.len());
        let event = has_room.then(|| self.with_memory(event, queued)).flatten();
        let Some(event) = event else {
            let unread = state.taken_at.elapsed();
            return Ok(PushOutcome::NoRoom { unread });
        };
        if state.events.is_empty() {
            // A client with nothing to read does not count as one that does not read.
            state.taken_at = Instant::now();
        }
        state.bytes = queued;
        state.events.push_back(event);
        let reader = state.reader.take();
        drop(state);
        if let Some(reader) = reader {
            reader.wake();
        }
        Ok(PushOutcome::Yes)
    }

    /// The event with the memory that it takes, if so many bytes are queued with it. None if there is no room.
    fn with_memory(&self, event: &Bytes, queued: usize) -> Option<Bytes> {
        let brings_its_own = event.len() > OWN_MEMORY_BYTES_MIN;
        if brings_its_own || queued <= SHORT_BYTES_MAX {
            return Some(event.clone());
        }
        let mut held = Arc::clone(&self.memory).hold();
        held.try_grow(event.len()).ok()?;
        Some(guarded_bytes(event.clone(), held))
    }

    /// The next event; none after the end.
    pub(super) fn poll_next(&self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let mut state = self.lock();
        let Some(event) = state.events.pop_front() else {
            if state.is_over {
                return Poll::Ready(None);
            }
            state.reader = Some(context.waker().clone());
            return Poll::Pending;
        };
        state.bytes = state.bytes.saturating_sub(event.len());
        state.taken_at = Instant::now();
        drop(state);
        self.room.notify_waiters();
        Poll::Ready(Some(event))
    }

    /// Accepts no more events. Queued events can still be read.
    pub(super) fn finish(&self) {
        let reader = {
            let mut state = self.lock();
            state.is_over = true;
            state.reader.take()
        };
        self.room.notify_waiters();
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    /// Accepts no more events and discards the queued ones.
    pub(super) fn cut(&self) {
        let unread = {
            let mut state = self.lock();
            state.bytes = 0;
            std::mem::take(&mut state.events)
        };
        drop(unread);
        self.finish();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use std::future::poll_fn;

    use super::*;
    use mooring_usage::{MemoryBudget, SharePart};

    /// The share of the one user of a budget.
    fn memory(bytes_max: usize) -> Arc<MemoryShare> {
        let patience = || -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> {
            Box::pin(std::future::pending())
        };
        MemoryBudget::new(bytes_max, bytes_max, SharePart::Whole, "test", patience).share()
    }

    async fn next(queue: &Queue) -> Option<Bytes> {
        poll_fn(|context| queue.poll_next(context)).await
    }

    async fn filled() -> Arc<Queue> {
        let queue = Arc::new(Queue::new(memory(1 << 30)));
        for _ in 0..EVENTS_MAX {
            queue.push(Bytes::from_static(b"x")).await.unwrap();
        }
        queue
    }

    #[tokio::test]
    async fn events_come_out_as_they_went_in_and_then_the_end() {
        let queue = Arc::new(Queue::new(memory(1 << 30)));
        let reading = tokio::spawn({
            let queue = Arc::clone(&queue);
            async move {
                let mut read = Vec::new();
                while let Some(event) = next(&queue).await {
                    read.push(event);
                }
                read
            }
        });
        for event in ["a", "b", "c"] {
            queue.push(event.into()).await.unwrap();
            tokio::task::yield_now().await;
        }
        queue.finish();
        assert_eq!(reading.await.unwrap(), ["a", "b", "c"]);
        assert_eq!(queue.push("d".into()).await, Err(StreamOver::Before));
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_client_is_waited_for() {
        let queue = filled().await;
        let writing = tokio::spawn({
            let queue = Arc::clone(&queue);
            async move {
                for _ in 0..5 {
                    queue.push(Bytes::from_static(b"y")).await.unwrap();
                }
            }
        });
        for _ in 0..5 {
            tokio::time::sleep(UNREAD_WITHIN - Duration::from_secs(1)).await;
            next(&queue).await.unwrap();
        }
        writing.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_is_cut_off_and_its_events_forgotten() {
        let queue = filled().await;
        let begun = Instant::now();
        let pushed = queue.push(Bytes::from_static(b"y")).await;
        assert_eq!(pushed, Err(StreamOver::Unread));
        assert!(begun.elapsed() >= UNREAD_WITHIN);
        assert_eq!(next(&queue).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_count_too_and_a_long_event_waits_alone() {
        let queue = Queue::new(memory(1 << 30));
        let long = Bytes::from(vec![b'x'; BYTES_MAX + 1]);
        queue.push(long.clone()).await.unwrap();
        let pushing = queue.push("y".into());
        tokio::pin!(pushing);
        let early = tokio::time::timeout(Duration::from_secs(1), &mut pushing).await;
        assert!(early.is_err());
        assert_eq!(next(&queue).await, Some(long));
        pushing.await.unwrap();
        assert_eq!(next(&queue).await.unwrap(), "y");
    }

    #[tokio::test(start_paused = true)]
    async fn time_without_events_is_no_time_without_reading() {
        let queue = Queue::new(memory(1 << 30));
        tokio::time::sleep(10 * UNREAD_WITHIN).await;
        for _ in 0..EVENTS_MAX {
            queue.push(Bytes::from_static(b"x")).await.unwrap();
        }
        let pushing = queue.push("y".into());
        let early = tokio::time::timeout(UNREAD_WITHIN / 2, pushing).await;
        assert!(early.is_err(), "it waits for room");
    }
}
