//! The entries of this process that are not written yet.
//!
//! Invariants: noting waits for nothing but a short lock; what is kept is bounded, for one session and in all, and what is
//! beyond it is left out and counted; a session gets one entry in [`REPEATS_AFTER`] for what its client repeats, with the
//! number of repetitions. A process that is killed loses what is here.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use mooring_session::time::Timestamp;
use tokio::sync::Notify;

use super::event::HistoryEvent;
use crate::clock::unix_now_ms;
use crate::lock::lock;

/// Most entries of all sessions.
const ENTRIES_MAX: usize = 4_096;
/// Most entries of one session, so that none takes the place of others.
const SESSION_ENTRIES_MAX: usize = 16;
/// How long repetitions of a written event are counted before they are written.
const REPEATS_AFTER: Duration = Duration::from_secs(10);
/// How long an entry waits for others to be written with it.
pub(super) const BATCH_PAUSE: Duration = Duration::from_millis(100);

/// The queue of a process.
#[derive(Debug)]
pub(crate) struct HistoryQueue {
    entries_max: usize,
    /// The gateway that notes.
    gateway: OnceLock<Box<str>>,
    state: Mutex<QueueState>,
    filled: Notify,
    /// Held while entries are written.
    writing: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct QueueState {
    /// By the digest of the session.
    sessions: HashMap<Box<str>, SessionQueue>,
    /// The number of entries of all sessions.
    count: usize,
}

#[derive(Debug, Default)]
struct SessionQueue {
    entries: Vec<QueuedEntry>,
    /// The repeatable events that were written last, and when.
    written: Vec<(HistoryEvent, Instant)>,
}

/// An entry that is not written.
#[derive(Clone, Debug)]
pub(crate) struct QueuedEntry {
    pub(crate) event: HistoryEvent,
    pub(crate) times: u64,
    /// When it happened last.
    pub(crate) at: Timestamp,
    due_at: Instant,
}

/// The entries of one session that are due.
#[derive(Debug)]
pub(crate) struct QueuedHistory {
    /// The digest of the session.
    pub(crate) session: Box<str>,
    pub(crate) entries: Vec<QueuedEntry>,
}

impl QueuedEntry {
    /// An event of now.
    pub(crate) fn new(event: HistoryEvent) -> Self {
        Self::due_at(event, Instant::now())
    }

    fn due_at(event: HistoryEvent, due_at: Instant) -> Self {
        Self {
            event,
            times: 1,
            at: Timestamp::from_unix_ms(unix_now_ms()),
            due_at,
        }
    }
}

impl HistoryQueue {
    /// An empty queue for histories of at most this many entries each; 0 if none are kept.
    pub(crate) fn new(entries_max: usize) -> Self {
        Self {
            entries_max,
            gateway: OnceLock::new(),
            state: Mutex::default(),
            filled: Notify::new(),
            writing: tokio::sync::Mutex::default(),
        }
    }

    /// Most entries of a history; 0 if none are kept.
    pub(crate) const fn entries_max(&self) -> usize {
        self.entries_max
    }

    /// Who notes here, for the entries. The first one counts.
    pub(crate) fn set_gateway(&self, gateway: &str) {
        let _ = self.gateway.set(gateway.into());
    }

    /// Who notes here; empty if that is not known yet.
    pub(crate) fn gateway(&self) -> &str {
        self.gateway.get().map_or("", |gateway| gateway)
    }

    /// Adds an event, or counts it as a repetition. Returns whether there was room.
    pub(crate) fn push(&self, session: &str, event: HistoryEvent) -> bool {
        if self.entries_max == 0 {
            return true;
        }
        let now = Instant::now();
        let mut state = self.lock();
        let QueueState { sessions, count } = &mut *state;
        if *count >= ENTRIES_MAX && !sessions.contains_key(session) {
            return false;
        }
        let queue = sessions.entry(session.into()).or_default();
        let mut due_at = now;
        if event.is_repeatable() {
            let earlier = (queue.entries.iter_mut()).find(|entry| event.repeats(&entry.event));
            if let Some(earlier) = earlier {
                earlier.times = earlier.times.saturating_add(1);
                earlier.at = Timestamp::from_unix_ms(unix_now_ms());
                earlier.event.absorb(event);
                return true;
            }
            let written = (queue.written.iter()).find(|(written, _)| event.repeats(written));
            due_at = written.map_or(now, |(_, at)| *at + REPEATS_AFTER).max(now);
        }
        if *count >= ENTRIES_MAX || queue.entries.len() >= SESSION_ENTRIES_MAX {
            return false;
        }
        queue.entries.push(QueuedEntry::due_at(event, due_at));
        *count += 1;
        drop(state);
        self.filled.notify_one();
        true
    }

    /// Waits until there are entries that are due, and for others to come with them.
    pub(crate) async fn wait_until_due(&self) {
        loop {
            let due_at = self.next_due_at();
            let filled = self.filled.notified();
            match due_at {
                Some(due_at) if due_at <= Instant::now() => break,
                Some(due_at) => {
                    // Something else may become due before.
                    let _ = tokio::time::timeout_at(due_at.into(), filled).await;
                }
                None => filled.await,
            }
        }
        tokio::time::sleep(BATCH_PAUSE).await;
    }

    fn next_due_at(&self) -> Option<Instant> {
        let state = self.lock();
        let entries = (state.sessions.values()).flat_map(|queue| &queue.entries);
        entries.map(|entry| entry.due_at).min()
    }

    /// Waits for entries that are being written.
    pub(crate) async fn begin_writing(&self) -> impl Drop {
        self.writing.lock().await
    }

    /// Takes the entries that are due, or all.
    pub(crate) fn take(&self, all: bool) -> Vec<QueuedHistory> {
        let now = Instant::now();
        let mut taken = Vec::new();
        let mut state = self.lock();
        let QueueState { sessions, count } = &mut *state;
        sessions.retain(|session, queue| {
            let is_due = |entry: &mut QueuedEntry| all || entry.due_at <= now;
            let entries: Vec<_> = queue.entries.extract_if(.., is_due).collect();
            *count -= entries.len();
            (queue.written).retain(|(_, at)| now.duration_since(*at) < REPEATS_AFTER);
            let repeatable = entries.iter().filter(|entry| entry.event.is_repeatable());
            (queue.written).extend(repeatable.map(|entry| (entry.event.clone(), now)));
            let is_kept = !queue.entries.is_empty() || !queue.written.is_empty();
            if !entries.is_empty() {
                let session = session.clone();
                taken.push(QueuedHistory { session, entries });
            }
            is_kept
        });
        taken
    }

    /// Puts entries back that could not be written, before those that came meanwhile. Returns how many had no room.
    pub(crate) fn put_back(&self, history: QueuedHistory) -> usize {
        let QueuedHistory {
            session,
            mut entries,
        } = history;
        let mut state = self.lock();
        let QueueState { sessions, count } = &mut *state;
        let queue = sessions.entry(session).or_default();
        let room = (ENTRIES_MAX.saturating_sub(*count))
            .min(SESSION_ENTRIES_MAX.saturating_sub(queue.entries.len()));
        let left_out = entries.len().saturating_sub(room);
        entries.truncate(room);
        *count += entries.len();
        queue.entries.splice(..0, entries);
        left_out
    }

    /// The entries of a session that are not written.
    pub(crate) fn unwritten(&self, session: &str) -> Vec<QueuedEntry> {
        let state = self.lock();
        let queue = state.sessions.get(session);
        queue.map(|queue| queue.entries.clone()).unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        lock(&self.state)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]
    use super::super::event::EndCause;
    use super::*;

    fn refused(limit: &'static str) -> HistoryEvent {
        HistoryEvent::Refused {
            server: "tools".into(),
            limit: limit.into(),
        }
    }

    fn bound(epoch: u64) -> HistoryEvent {
        HistoryEvent::Bound {
            server: "tools".into(),
            instance: "a".into(),
            epoch,
        }
    }

    #[test]
    fn repetitions_are_counted_in_one_entry() {
        let queue = HistoryQueue::new(64);
        for _ in 0..3 {
            assert!(queue.push("s", refused("rate")));
        }
        assert!(queue.push("s", refused("calls")));
        let taken = queue.take(false).pop().unwrap().entries;
        let times: Vec<u64> = taken.iter().map(|entry| entry.times).collect();
        assert_eq!(times, [3, 1]);

        // One that was just written is not written again at once.
        assert!(queue.push("s", refused("rate")));
        assert!(queue.take(false).is_empty());
        assert!(queue.push("s", refused("rate")));
        let rest = queue.take(true).pop().unwrap().entries;
        assert_eq!((rest.len(), rest.first().unwrap().times), (1, 2));
    }

    #[test]
    fn of_repeated_waits_the_longest_is_kept() {
        let queue = HistoryQueue::new(64);
        for wait_ms in [2_000, 5_000, 3_000] {
            let waited = HistoryEvent::Waited {
                server: "tools".into(),
                wait_ms,
                holder: None,
                outcome: "got it".into(),
            };
            assert!(queue.push("s", waited));
        }
        let taken = queue.take(false).pop().unwrap().entries;
        let [
            QueuedEntry {
                event: HistoryEvent::Waited { wait_ms, .. },
                times,
                ..
            },
        ] = &taken[..]
        else {
            panic!("{taken:?}");
        };
        assert_eq!((*wait_ms, *times), (5_000, 3));
    }

    #[test]
    fn a_session_has_its_share_and_no_more() {
        let queue = HistoryQueue::new(64);
        let taken = (0..1_000)
            .filter(|epoch| queue.push("s", bound(*epoch)))
            .count();
        assert_eq!(taken, SESSION_ENTRIES_MAX);
        assert!(queue.push("o", bound(1)), "others have room");
        let ended = HistoryEvent::Ended {
            cause: EndCause::Client,
        };
        assert!(!queue.push("s", ended));
    }

    #[test]
    fn all_sessions_together_are_bounded() {
        let queue = HistoryQueue::new(64);
        let pushed = |number: usize| queue.push(&format!("s{number}"), bound(1));
        assert_eq!(
            (0..2 * ENTRIES_MAX)
                .filter(|number| pushed(*number))
                .count(),
            ENTRIES_MAX
        );
        let taken = queue.take(true);
        assert_eq!(taken.len(), ENTRIES_MAX);
        assert!(pushed(0), "there is room again");
        let left_out: usize = taken
            .into_iter()
            .map(|history| queue.put_back(history))
            .sum();
        assert_eq!(left_out, 1);
    }

    #[test]
    fn nothing_is_kept_where_histories_are_off() {
        let queue = HistoryQueue::new(0);
        assert!(queue.push("s", bound(1)));
        assert!(queue.take(true).is_empty());
    }
}
