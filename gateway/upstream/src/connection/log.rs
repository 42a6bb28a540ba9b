//! The latest events of a connection, from which a client resumes a broken stream.
//!
//! Invariants: event numbers increase across all streams; at most `events_max` events and `bytes_max` bytes are kept,
//! the newest ones; each stream knows whether some of its events were evicted; an event is replayed only on its own
//! stream, even if a client reuses a request id.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use super::event_id::{EventId, StreamName};
use mooring_protocol::Event;

/// One of the streams of a connection. Names repeat if a client reuses a request id.
#[derive(Debug)]
pub(super) struct StreamTag {
    name: StreamName,
    /// All events of this stream have larger numbers; all events of earlier streams of the same name have smaller ones.
    first: u64,
    /// The number of its last evicted event; 0 if none was.
    lost: AtomicU64,
}

impl StreamTag {
    /// Whether the event with this number can belong to this stream.
    pub(super) fn is_of(&self, name: &StreamName, number: u64) -> bool {
        self.name == *name && self.first <= number
    }

    /// Whether events after this number were evicted.
    pub(super) fn has_lost_after(&self, number: u64) -> bool {
        self.lost.load(Ordering::Relaxed) > number
    }

    fn lose(&self, number: u64) {
        self.lost.fetch_max(number, Ordering::Relaxed);
    }
}

/// The role of an event in its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventPart {
    /// Carries only an id; not kept.
    Priming,
    /// A message before the answer.
    Middle,
    /// The answer, which is the last event.
    Answer,
}

#[derive(Debug)]
struct Entry {
    tag: Arc<StreamTag>,
    number: u64,
    part: EventPart,
    event: Event,
}

/// The kept events and the next event number.
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

    /// The epoch in event ids.
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

    /// Creates the event of a message and keeps it. An event larger than the whole log is not kept and evicts nothing.
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

    /// The stream of the event with this number, if events of it are kept.
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

    /// Whether the stream's answer is kept.
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
    use mooring_protocol::RequestTag;

    fn call(id_json: &str) -> StreamName {
        StreamName::call(RequestTag(10), id_json).unwrap()
    }

    fn number(event: &Event) -> u64 {
        EventId::parse(event.id.as_deref().unwrap()).unwrap().number
    }

    fn kept(log: &EventLog, tag: &Arc<StreamTag>) -> usize {
        log.after(tag, 0).count()
    }

    #[test]
    fn only_the_named_stream_is_replayed() {
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
    fn the_oldest_events_are_evicted_by_count_and_size() {
        let mut log = EventLog::new(1, 3, 1000);
        let tag = log.begin(call("1"));
        for _ in 0..5 {
            log.write(&tag, EventPart::Middle, "{}".into());
        }
        assert_eq!(kept(&log, &tag), 3);
        // 1 is the stream's own number: 2 and 3 were evicted.
        assert!(tag.has_lost_after(2) && !tag.has_lost_after(3));
        log.write(&tag, EventPart::Middle, "x".repeat(952).into());
        assert_eq!(kept(&log, &tag), 1);
        assert!(log.bytes <= 1000);
    }

    #[test]
    fn an_event_larger_than_the_log_evicts_nothing() {
        let mut log = EventLog::new(1, 3, 100);
        let tag = log.begin(call("1"));
        log.write(&tag, EventPart::Middle, "{}".into());
        let answer = log.write(&tag, EventPart::Answer, "x".repeat(200).into());
        assert!(answer.length() > 200);
        assert_eq!(kept(&log, &tag), 1);
        assert!(!log.has_answer(&tag) && tag.has_lost_after(number(&answer) - 1));
    }

    #[test]
    fn a_reused_id_is_another_stream() {
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
