//! The queue between a connection and the reader of one of its streams. The reader is a stream of events.
//!
//! Invariants: the stream ends without an error only after all queued events were read, or if the connection cut a slow
//! reader after an event with which it can resume; all queues of a connection are counted in its one [`Backlog`], open
//! streams and ended streams separately. The lock is held only for a push or a pop, never across an await.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use futures_util::Stream;
use tokio::sync::Notify;

use mooring_protocol::{Event, ReplyError};
use mooring_usage::{MemoryShare, RoomWait, SHORT_BYTES_MAX};

/// The unread events of one connection.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    events: AtomicUsize,
    bytes: AtomicUsize,
    ended_bytes: AtomicUsize,
    released: Notify,
}

impl Backlog {
    /// The number of unread events on open streams.
    pub(super) fn events(&self) -> usize {
        self.events.load(Ordering::Relaxed)
    }

    /// The unread bytes on open streams.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The unread bytes on ended streams.
    pub(super) fn ended_bytes(&self) -> usize {
        self.ended_bytes.load(Ordering::Relaxed)
    }

    /// Waits until a reader has taken an event.
    pub(super) async fn released(&self) {
        self.released.notified().await;
    }

    fn add(&self, bytes: usize) {
        self.events.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn release(&self, (events, bytes): (usize, usize)) {
        if events > 0 {
            self.events.fetch_sub(events, Ordering::Relaxed);
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.released.notify_one();
        }
    }

    fn add_ended(&self, bytes: usize) {
        self.ended_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn release_ended(&self, bytes: usize) {
        self.ended_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// How a stream ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Complete.
    Whole,
    /// The connection to the server ended first.
    Broken(Box<str>),
}

#[derive(Debug)]
struct Queue {
    events: VecDeque<Event>,
    bytes: usize,
    end: Option<End>,
    is_read: bool,
    waker: Option<Waker>,
}

impl Queue {
    /// The number of queued events, and their bytes.
    fn waiting(&self) -> (usize, usize) {
        (self.events.len(), self.bytes)
    }
}

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    backlog: Arc<Backlog>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the queue and keeps its first `kept_max` events. Later ends have no effect.
    fn end(&self, end: End, kept_max: usize) {
        let mut queue = self.lock();
        if queue.end.is_some() {
            return;
        }
        queue.end = Some(end);
        let waited = queue.waiting();
        while queue.events.len() > kept_max
            && let Some(event) = queue.events.pop_back()
        {
            queue.bytes = queue.bytes.saturating_sub(event.length());
        }
        self.backlog.add_ended(queue.bytes);
        let waker = queue.waker.take();
        drop(queue);
        self.backlog.release(waited);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// The sending half.
#[derive(Debug)]
pub(super) struct Outbox(Arc<Shared>);

/// The reading half: the events of a reply. A long event leaves the queue when there is memory for it.
#[derive(Debug)]
pub(super) struct Reader {
    shared: Arc<Shared>,
    /// At whose expense long events are held.
    memory: Option<Arc<MemoryShare>>,
    room: RoomWait,
}

/// Both halves of an empty queue. Messages read from it are charged to `memory`.
pub(super) fn outbox(
    backlog: &Arc<Backlog>,
    memory: Option<&Arc<MemoryShare>>,
) -> (Outbox, Reader) {
    let shared = Arc::new(Shared {
        queue: Mutex::new(Queue {
            events: VecDeque::new(),
            bytes: 0,
            end: None,
            is_read: true,
            waker: None,
        }),
        backlog: Arc::clone(backlog),
    });
    let reader = Reader {
        shared: Arc::clone(&shared),
        memory: memory.cloned(),
        room: RoomWait::default(),
    };
    (Outbox(shared), reader)
}

impl Outbox {
    /// Queues an event, unless the reader is gone or the stream has ended.
    pub(super) fn push(&self, event: Event) {
        let mut queue = self.0.lock();
        if !queue.is_read || queue.end.is_some() {
            return;
        }
        self.0.backlog.add(event.length());
        queue.bytes += event.length();
        queue.events.push_back(event);
        let waker = queue.waker.take();
        drop(queue);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Whether the reader still exists.
    pub(super) fn is_read(&self) -> bool {
        self.0.lock().is_read
    }

    /// The number of queued events, and their bytes.
    pub(super) fn waiting(&self) -> (usize, usize) {
        self.0.lock().waiting()
    }

    /// Ends the stream after the queued events.
    pub(super) fn end(self, end: End) {
        self.0.end(end, usize::MAX);
    }

    /// Ends the stream of a slow reader. One event is left, whose id tells the client where to resume.
    pub(super) fn cut(self) {
        self.0.end(End::Whole, 1);
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        let end = End::Broken("it was given up".into());
        self.0.end(end, usize::MAX);
    }
}

impl Stream for Reader {
    type Item = Result<Event, ReplyError>;

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Event, ReplyError>>> {
        let this = &mut *self;
        let mut queue = this.shared.lock();
        let mut held = None;
        if let Some(first) = queue.events.front()
            && first.length() > SHORT_BYTES_MAX
            && let Some(memory) = &this.memory
        {
            let mut taken = Arc::clone(memory).hold();
            match taken.poll_grow(first.length(), &mut this.room, context) {
                Poll::Ready(Ok(())) => held = Some(Arc::new(taken)),
                Poll::Ready(Err(no_room)) => return Poll::Ready(Some(Err(no_room.into()))),
                Poll::Pending => {
                    // The queue may also be cut meanwhile.
                    queue.waker = Some(context.waker().clone());
                    return Poll::Pending;
                }
            }
        }
        if let Some(event) = queue.events.pop_front() {
            queue.bytes = queue.bytes.saturating_sub(event.length());
            let has_ended = queue.end.is_some();
            drop(queue);
            if has_ended {
                this.shared.backlog.release_ended(event.length());
            } else {
                this.shared.backlog.release((1, event.length()));
            }
            return Poll::Ready(Some(Ok(Event { held, ..event })));
        }
        match queue.end.take() {
            None => {
                queue.waker = Some(context.waker().clone());
                Poll::Pending
            }
            Some(end) => {
                // A later poll sees the regular end.
                queue.end = Some(End::Whole);
                Poll::Ready(match end {
                    End::Whole => None,
                    End::Broken(reason) => Some(Err(ReplyError::broken(format!(
                        "the connection to the server ended: {reason}"
                    )))),
                })
            }
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut queue = self.shared.lock();
        queue.is_read = false;
        let waited = queue.waiting();
        queue.events.clear();
        queue.bytes = 0;
        let has_ended = queue.end.is_some();
        drop(queue);
        if has_ended {
            self.shared.backlog.release_ended(waited.1);
        } else {
            self.shared.backlog.release(waited);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test code")]
    use futures_util::StreamExt;

    use super::*;

    async fn rest(mut reader: Reader) -> (usize, Option<String>) {
        let mut events = 0;
        while let Some(event) = reader.next().await {
            match event {
                Ok(_) => events += 1,
                Err(error) => return (events, Some(error.to_string())),
            }
        }
        (events, None)
    }

    fn counts(backlog: &Backlog) -> (usize, usize, usize) {
        (backlog.events(), backlog.bytes(), backlog.ended_bytes())
    }

    fn filled(events: usize) -> (Arc<Backlog>, Outbox, Reader) {
        let backlog = Arc::new(Backlog::default());
        let (outbox, reader) = outbox(&backlog, None);
        for _ in 0..events {
            outbox.push(Event::message("123456789"));
        }
        (backlog, outbox, reader)
    }

    #[tokio::test]
    async fn queued_events_come_before_the_end() {
        for (end, error) in [
            (End::Whole, None),
            (
                End::Broken("it died".into()),
                Some("the connection to the server ended: it died".to_owned()),
            ),
        ] {
            let (backlog, outbox, reader) = filled(3);
            outbox.end(end);
            assert_eq!(counts(&backlog), (0, 0, 27));
            assert_eq!(rest(reader).await, (3, error));
            assert_eq!(counts(&backlog), (0, 0, 0));
        }
    }

    #[tokio::test]
    async fn a_dropped_outbox_breaks_the_stream() {
        let (_backlog, outbox, reader) = filled(1);
        drop(outbox);
        let (events, error) = rest(reader).await;
        assert_eq!((events, error.is_some()), (1, true));
    }

    #[tokio::test]
    async fn a_cut_reader_keeps_one_event_to_resume_after() {
        let (backlog, outbox, reader) = filled(5);
        assert_eq!(outbox.waiting(), (5, 45));
        outbox.cut();
        assert_eq!(counts(&backlog), (0, 0, 9));
        assert_eq!(rest(reader).await, (1, None));
        assert_eq!(counts(&backlog), (0, 0, 0));
    }

    #[tokio::test]
    async fn a_dropped_reader_releases_its_backlog() {
        let (backlog, outbox, reader) = filled(5);
        assert!(outbox.is_read());
        drop(reader);
        assert!(!outbox.is_read());
        assert_eq!(counts(&backlog), (0, 0, 0));
        outbox.push(Event::message("123456789"));
        assert_eq!(outbox.waiting(), (0, 0));
        backlog.released().await;
    }

    #[tokio::test]
    async fn a_dropped_reader_of_an_ended_stream_releases_its_backlog() {
        let (backlog, outbox, reader) = filled(5);
        outbox.end(End::Whole);
        assert_eq!(counts(&backlog), (0, 0, 45));
        drop(reader);
        assert_eq!(counts(&backlog), (0, 0, 0));
    }
}
