//! The last events of a connection, from which a client that lost a stream goes on.
//!
//! Invariants: the numbers of events only grow, over all streams; no more than `events_max` events and `bytes_max` bytes
//! are kept, the newest ones, and of each stream it is known whether some are not kept any more; an event is replayed on no
//! other stream than its own, also where a client used an id twice.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use super::event_id::{EventId, StreamName};
use mooring_protocol::Event;

/// One stream among those that a connection ever had: names repeat where a client uses an id again.
#[derive(Debug)]
pub(super) struct StreamTag {
    name: StreamName,
    /// Every event of this stream has a larger number, every event of an earlier one of the name a smaller one.
    first: u64,
    /// The last of its events that is not kept any more; 0 where all are.
    lost: AtomicU64,
}

impl StreamTag {
    /// Whether the event with this number can be of this stream.
    pub(super) fn is_of(&self, name: &StreamName, number: u64) -> bool {
        self.name == *name && self.first <= number
    }

    /// Whether there were events after the one with this number that are not kept any more.
    pub(super) fn has_lost_after(&self, number: u64) -> bool {
        self.lost.load(Ordering::Relaxed) > number
    }

    fn lose(&self, number: u64) {
        self.lost.fetch_max(number, Ordering::Relaxed);
    }
}

/// What an event is to its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventPart {
    /// It only tells the client an id; it is not kept.
    Priming,
    /// A message before the answer.
    Middle,
    /// The answer: nothing comes after it.
    Answer,
}

#[derive(Debug)]
struct Entry {
    tag: Arc<StreamTag>,
    number: u64,
    part: EventPart,
    event: Event,
}

/// The events that are kept, and the numbers of those to come.
#[derive(Debug)]
pub(super) struct EventLog {
    epoch: u64,
    next: u64,
    entries: VecDeque<Entry>,
    bytes: usize,
    events_max: usize,
    bytes_max: usize,
}

impl EventLog {
    /// An empty log.
    pub(super) const fn new(epoch: u64, events_max: usize, bytes_max: usize) -> Self {
        Self {
            epoch,
            next: 1,
            entries: VecDeque::new(),
            bytes: 0,
            events_max,
            bytes_max,
        }
    }

    /// The epoch that the ids of events name.
    pub(super) const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// A new stream.
    pub(super) fn begin(&mut self, name: StreamName) -> Arc<StreamTag> {
        let first = self.take_number();
        Arc::new(StreamTag {
            name,
            first,
            lost: AtomicU64::new(0),
        })
    }

    /// Makes the event of a message, and keeps it. One that is larger than the whole log is not kept, and pushes
    /// nothing out.
    pub(super) fn write(&mut self, tag: &Arc<StreamTag>, part: EventPart, data: Bytes) -> Event {
        let number = self.take_number();
        let id = EventId {
            epoch: self.epoch,
            stream: tag.name.clone(),
            number,
        };
        let event = Event {
            id: Some(id.to_string().into()),
            ..Event::message(data)
        };
        if part == EventPart::Priming {
            return event;
        }
        if event.length() <= self.bytes_max && self.events_max > 0 {
            self.bytes += event.length();
            self.entries.push_back(Entry {
                tag: Arc::clone(tag),
                number,
                part,
                event: event.clone(),
            });
            self.evict();
        } else {
            tag.lose(number);
        }
        event
    }

    /// The stream that the event with this number was on, as far as what is kept tells.
    pub(super) fn find(&self, name: &StreamName, number: u64) -> Option<Arc<StreamTag>> {
        self.entries
            .iter()
            .map(|entry| &entry.tag)
            .filter(|tag| tag.is_of(name, number))
            .max_by_key(|tag| tag.first)
            .cloned()
    }

    /// The events of a stream after the one with this number.
    pub(super) fn after(&self, tag: &Arc<StreamTag>, number: u64) -> impl Iterator<Item = Event> {
        self.entries
            .iter()
            .filter(move |entry| entry.number > number && Arc::ptr_eq(&entry.tag, tag))
            .map(|entry| entry.event.clone())
    }

    /// Whether the answer that ends a stream is kept.
    pub(super) fn has_answer(&self, tag: &Arc<StreamTag>) -> bool {
        self.entries
            .iter()
            .any(|entry| entry.part == EventPart::Answer && Arc::ptr_eq(&entry.tag, tag))
    }

    fn take_number(&mut self) -> u64 {
        let number = self.next;
        self.next = self.next.saturating_add(1);
        number
    }

    fn evict(&mut self) {
        while (self.entries.len() > self.events_max || self.bytes > self.bytes_max)
            && let Some(oldest) = self.entries.pop_front()
        {
            self.bytes = self.bytes.saturating_sub(oldest.event.length());
            oldest.tag.lose(oldest.number);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test code")]
    use super::*;

    fn call(id_json: &str) -> StreamName {
        StreamName::call(id_json).unwrap()
    }

    fn number(event: &Event) -> u64 {
        EventId::parse(event.id.as_deref().unwrap()).unwrap().number
    }

    fn kept(log: &EventLog, tag: &Arc<StreamTag>) -> usize {
        log.after(tag, 0).count()
    }

    #[test]
    fn a_stream_is_replayed_after_an_event_and_no_other_with_it() {
        let mut log = EventLog::new(1, 100, 1 << 20);
        let (one, two) = (log.begin(call("1")), log.begin(call("2")));
        let first = log.write(&one, EventPart::Middle, "{}".into());
        log.write(&two, EventPart::Middle, "{}".into());
        let answer = log.write(&one, EventPart::Answer, "{}".into());
        let after: Vec<_> = log.after(&one, number(&first)).collect();
        assert_eq!(after, [answer]);
        assert!(log.has_answer(&one) && !log.has_answer(&two));
        assert!(!one.has_lost_after(0));
    }

    #[test]
    fn the_oldest_go_first_by_count_and_by_size() {
        let mut log = EventLog::new(1, 3, 1000);
        let tag = log.begin(call("1"));
        for _ in 0..5 {
            log.write(&tag, EventPart::Middle, "{}".into());
        }
        assert_eq!(kept(&log, &tag), 3);
        // 1 is the stream's own number: 2 and 3 are gone.
        assert!(tag.has_lost_after(2) && !tag.has_lost_after(3));
        log.write(&tag, EventPart::Middle, "x".repeat(985).into());
        assert_eq!(kept(&log, &tag), 1);
        assert!(log.bytes <= 1000);
    }

    #[test]
    fn what_is_larger_than_the_log_pushes_nothing_out() {
        let mut log = EventLog::new(1, 3, 100);
        let tag = log.begin(call("1"));
        log.write(&tag, EventPart::Middle, "{}".into());
        let answer = log.write(&tag, EventPart::Answer, "x".repeat(200).into());
        assert!(answer.length() > 200);
        assert_eq!(kept(&log, &tag), 1);
        assert!(!log.has_answer(&tag) && tag.has_lost_after(number(&answer) - 1));
    }

    #[test]
    fn an_id_that_is_used_again_is_another_stream() {
        let mut log = EventLog::new(1, 100, 1 << 20);
        let earlier = log.begin(call("1"));
        let primed = number(&log.write(&earlier, EventPart::Priming, Bytes::new()));
        log.write(&earlier, EventPart::Answer, "{}".into());
        let later = log.begin(call("1"));
        let begun = number(&log.write(&later, EventPart::Middle, "{}".into()));
        assert!(Arc::ptr_eq(
            &log.find(&call("1"), primed).unwrap(),
            &earlier
        ));
        assert!(Arc::ptr_eq(&log.find(&call("1"), begun).unwrap(), &later));
        assert!(log.find(&call("2"), begun).is_none());
        assert!(log.find(&call("1"), 0).is_none());
    }
}
