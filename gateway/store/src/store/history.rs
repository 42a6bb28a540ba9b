//! The histories of sessions: noting beside the request, writing in batches, and reading.
//!
//! Invariant: what cannot be written stays in the bounded queue of this process, and goes to the store when it is back.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use metrics::counter;
use mooring_session::names::WorkerId;
use mooring_session::time::Millis;

use super::{Store, on_backend};
use crate::error::{NotReady, StoreError};
use crate::history::{
    HistoryEntry, HistoryEvent, HistoryWrite, QueuedEntry, QueuedHistory, decode, encode,
};
use crate::key::SessionKey;

/// Pause before entries that could not be written are tried again.
const WRITE_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Most sessions whose entries are written at the same time.
const AT_ONCE: usize = 16;
/// How long a history outlives its last entry or renewal, in TTLs of a session: an expired session is kept for one more,
/// and histories of sessions in use are renewed twice in one.
const HISTORY_KEEP_TTLS: u64 = 3;

impl Store {
    /// Notes what has happened to the session with this digest, for [`history`](Self::history). It is written soon, by
    /// [`keep_history`](Self::keep_history). Waits for nothing, and cannot fail: beyond its limits it is left out and counted.
    pub fn note(&self, session: &str, event: HistoryEvent) {
        if !self.history_queue.push(session, event) {
            count("left_out", 1);
        }
    }

    /// Writes an event at once, in the name of `by`: for commands, which end before a queue is written.
    ///
    /// # Errors
    /// The store's own only.
    pub async fn append_history(
        &self,
        key: &SessionKey,
        by: &str,
        event: HistoryEvent,
    ) -> Result<(), StoreError> {
        match self.history_queue.entries_max() {
            0 => Ok(()),
            _ => {
                self.write_history(&key.digest(), by, &[QueuedEntry::new(event)])
                    .await
            }
        }
    }

    /// The history of a session, the oldest entry first, also while its tombstone is kept; empty if there is none. What this
    /// process has not written yet is in it.
    ///
    /// # Errors
    /// The store's own only.
    pub async fn history(&self, key: &SessionKey) -> Result<Vec<HistoryEntry>, StoreError> {
        self.history_of(&key.digest()).await
    }

    /// The history of the session with this digest, as [`SessionKey::digest`] has it.
    ///
    /// # Errors
    /// The store's own only.
    pub async fn history_of(&self, digest: &str) -> Result<Vec<HistoryEntry>, StoreError> {
        let unwritten = self.history_queue.unwritten(digest);
        let stored = match on_backend!("LRANGE", self.read_history(digest)) {
            Ok(stored) => stored,
            // Of a session that memory serves, the queue has all of the outage.
            Err(StoreError::Away(_)) if !unwritten.is_empty() => Vec::new(),
            Err(error) => return Err(error),
        };
        let gateway = self.history_queue.gateway();
        let unwritten = unwritten.iter().map(|entry| text_of(entry, gateway));
        let mut entries: Vec<_> = stored
            .into_iter()
            .chain(unwritten)
            .map(|text| decode(&text))
            .collect();
        // Several gateways write, each after a pause.
        entries.sort_by_key(|entry| entry.at);
        Ok(entries)
    }

    /// Keeps the history of a session in use for longer. Does nothing if there is none.
    ///
    /// # Errors
    /// The store's own only.
    pub async fn renew_history(&self, key: &SessionKey) -> Result<(), StoreError> {
        if self.history_queue.entries_max() == 0 {
            return Ok(());
        }
        let (digest, keep) = (key.digest(), self.history_keep());
        on_backend!("PEXPIRE", self.renew_history(&digest, keep))
    }

    /// Writes what is noted, in the name of this gateway, until it is stopped.
    pub async fn keep_history(&self, gateway: &WorkerId) {
        self.history_queue.set_gateway(gateway.as_str());
        let mut was_written = true;
        loop {
            self.history_queue.wait_until_due().await;
            match self.write_queued(false).await {
                Ok(()) => was_written = true,
                Err(error) => {
                    // One line per outage: changes of the store's state are logged elsewhere.
                    if was_written {
                        tracing::info!(%error, "histories of sessions not written");
                    }
                    was_written = false;
                    tokio::time::sleep(WRITE_AGAIN_AFTER).await;
                }
            }
        }
    }

    /// Writes everything that is noted, before this process ends.
    pub async fn finish_history(&self) {
        if let Err(error) = self.write_queued(true).await {
            tracing::info!(%error, "the last entries of sessions' histories are lost");
        }
    }

    async fn write_queued(&self, all: bool) -> Result<(), StoreError> {
        let _writing = self.history_queue.begin_writing().await;
        let gateway = self.history_queue.gateway();
        let histories = stream::iter(self.history_queue.take(all));
        let is_away = &AtomicBool::new(false);
        let outcomes = histories.map(|history| async move {
            if is_away.load(Ordering::Relaxed) {
                count("left_out", self.history_queue.put_back(history));
                return Ok(());
            }
            let QueuedHistory { session, entries } = &history;
            let written = self.write_history(session, gateway, entries).await;
            match &written {
                Ok(()) => {}
                Err(error) if is_lasting(error) => count("left_out", entries.len()),
                Err(_) => {
                    is_away.store(true, Ordering::Relaxed);
                    count("left_out", self.history_queue.put_back(history));
                }
            }
            written
        });
        let mut outcomes = outcomes.buffer_unordered(AT_ONCE);
        let mut result = Ok(());
        while let Some(outcome) = outcomes.next().await {
            result = result.and(outcome);
        }
        result
    }

    async fn write_history(
        &self,
        session: &str,
        gateway: &str,
        entries: &[QueuedEntry],
    ) -> Result<(), StoreError> {
        let entries_max = self.history_queue.entries_max();
        let latest = entries.len().saturating_sub(entries_max);
        let write = HistoryWrite {
            session: session.into(),
            entries: (entries.iter().skip(latest))
                .map(|entry| text_of(entry, gateway))
                .collect(),
            entries_max,
            keep: self.history_keep(),
        };
        on_backend!("RPUSH", self.append_history(&write))?;
        count("written", entries.len());
        Ok(())
    }

    fn history_keep(&self) -> Millis {
        self.session_ttl.times(HISTORY_KEEP_TTLS)
    }
}

fn text_of(entry: &QueuedEntry, gateway: &str) -> String {
    encode(&entry.event, gateway, entry.at, entry.times)
}

/// Whether a repetition would fail too: the user of Redis lacks a command, or the key has a value of another kind.
fn is_lasting(error: &StoreError) -> bool {
    match error {
        StoreError::NotReady(NotReady::Answered(text)) => {
            text.starts_with("NOPERM") || text.starts_with("WRONGTYPE")
        }
        _ => false,
    }
}

fn count(outcome: &'static str, entries: usize) {
    let entries = u64::try_from(entries).unwrap_or(u64::MAX);
    counter!("mooring_history_entries_total", "outcome" => outcome).increment(entries);
}
