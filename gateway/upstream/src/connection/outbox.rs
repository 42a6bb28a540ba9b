//! The queue between a connection and the reader of one of its streams, and that reader as a stream of events.
//!
//! Invariants: the stream ends without an error only after everything that was put in was taken, or where the connection
//! cut it for its slowness after an event by which it can be resumed; what waits in all the queues of a connection is
//! counted in its one [`Backlog`], apart for streams that go on and for those that have ended. The lock is held for a push
//! or a pop, never while anything is waited for.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use futures_util::Stream;
use tokio::sync::Notify;

use mooring_protocol::{Event, ReplyError};

/// What waits for the readers of one connection.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    events: AtomicUsize,
    bytes: AtomicUsize,
    left_bytes: AtomicUsize,
    relieved: Notify,
}

impl Backlog {
    /// How many events wait on streams that go on.
    pub(super) fn events(&self) -> usize {
        self.events.load(Ordering::Relaxed)
    }

    /// How many bytes wait on streams that go on.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// How many bytes of streams that have ended were not read yet.
    pub(super) fn left_bytes(&self) -> usize {
        self.left_bytes.load(Ordering::Relaxed)
    }

    /// Waits until a reader took something.
    pub(super) async fn relieved(&self) {
        self.relieved.notified().await;
    }

    fn add(&self, bytes: usize) {
        self.events.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn relieve(&self, (events, bytes): (usize, usize)) {
        if events > 0 {
            self.events.fetch_sub(events, Ordering::Relaxed);
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.relieved.notify_one();
        }
    }

    fn add_left(&self, bytes: usize) {
        self.left_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn relieve_left(&self, bytes: usize) {
        self.left_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// How a stream ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Nothing is missing.
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
    /// How many events wait, and their bytes.
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

    /// Ends the queue, keeping its first `kept_max` events. The first end stays.
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
        self.backlog.add_left(queue.bytes);
        let waker = queue.waker.take();
        drop(queue);
        self.backlog.relieve(waited);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// The connection's end.
#[derive(Debug)]
pub(super) struct Outbox(Arc<Shared>);

/// The reader's end: the events of a reply.
#[derive(Debug)]
pub(super) struct Reader(Arc<Shared>);

/// Both ends of an empty queue.
pub(super) fn outbox(backlog: &Arc<Backlog>) -> (Outbox, Reader) {
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
    (Outbox(Arc::clone(&shared)), Reader(shared))
}

impl Outbox {
    /// Puts an event in; nothing where nobody reads any more.
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

    /// Whether somebody reads.
    pub(super) fn is_read(&self) -> bool {
        self.0.lock().is_read
    }

    /// How much waits in it: events, and their bytes.
    pub(super) fn waiting(&self) -> (usize, usize) {
        self.0.lock().waiting()
    }

    /// Ends the stream after what is in it.
    pub(super) fn end(self, end: End) {
        self.0.end(end, usize::MAX);
    }

    /// Ends the stream of a reader that is too slow. One event is left, whose id tells where to resume.
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
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Event, ReplyError>>> {
        let mut queue = self.0.lock();
        if let Some(event) = queue.events.pop_front() {
            queue.bytes = queue.bytes.saturating_sub(event.length());
            let has_ended = queue.end.is_some();
            drop(queue);
            if has_ended {
                self.0.backlog.relieve_left(event.length());
            } else {
                self.0.backlog.relieve((1, event.length()));
            }
            return Poll::Ready(Some(Ok(event)));
        }
        match queue.end.take() {
            None => {
                queue.waker = Some(context.waker().clone());
                Poll::Pending
            }
            Some(end) => {
                // Polled again, the stream has ended.
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
        let mut queue = self.0.lock();
        queue.is_read = false;
        let waited = queue.waiting();
        queue.events.clear();
        queue.bytes = 0;
        let has_ended = queue.end.is_some();
        drop(queue);
        if has_ended {
            self.0.backlog.relieve_left(waited.1);
        } else {
            self.0.backlog.relieve(waited);
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
        (backlog.events(), backlog.bytes(), backlog.left_bytes())
    }

    fn filled(events: usize) -> (Arc<Backlog>, Outbox, Reader) {
        let backlog = Arc::new(Backlog::default());
        let (outbox, reader) = outbox(&backlog);
        for _ in 0..events {
            outbox.push(Event::message("123456789"));
        }
        (backlog, outbox, reader)
    }

    #[tokio::test]
    async fn what_was_put_in_comes_before_the_end() {
        for (end, told) in [
            (End::Whole, None),
            (
                End::Broken("it died".into()),
                Some("the connection to the server ended: it died".to_owned()),
            ),
        ] {
            let (backlog, outbox, reader) = filled(3);
            outbox.end(end);
            assert_eq!(counts(&backlog), (0, 0, 27));
            assert_eq!(rest(reader).await, (3, told));
            assert_eq!(counts(&backlog), (0, 0, 0));
        }
    }

    #[tokio::test]
    async fn a_connection_that_vanishes_breaks_the_body() {
        let (_backlog, outbox, reader) = filled(1);
        drop(outbox);
        let (events, error) = rest(reader).await;
        assert_eq!((events, error.is_some()), (1, true));
    }

    #[tokio::test]
    async fn a_slow_reader_is_left_one_event_to_resume_after() {
        let (backlog, outbox, reader) = filled(5);
        assert_eq!(outbox.waiting(), (5, 45));
        outbox.cut();
        assert_eq!(counts(&backlog), (0, 0, 9));
        assert_eq!(rest(reader).await, (1, None));
        assert_eq!(counts(&backlog), (0, 0, 0));
    }

    #[tokio::test]
    async fn a_reader_that_goes_takes_its_backlog_along() {
        let (backlog, outbox, reader) = filled(5);
        assert!(outbox.is_read());
        drop(reader);
        assert!(!outbox.is_read());
        assert_eq!(counts(&backlog), (0, 0, 0));
        outbox.push(Event::message("123456789"));
        assert_eq!(outbox.waiting(), (0, 0));
        backlog.relieved().await;
    }

    #[tokio::test]
    async fn a_reader_that_leaves_an_ended_stream_unread_takes_that_along_too() {
        let (backlog, outbox, reader) = filled(5);
        outbox.end(End::Whole);
        assert_eq!(counts(&backlog), (0, 0, 45));
        drop(reader);
        assert_eq!(counts(&backlog), (0, 0, 0));
    }
}
