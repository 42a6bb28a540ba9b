//! Work besides the commands: recording uses and deleting expired rows, in small steps.
//!
//! Invariant: it fails no command and delays none for long.

use std::time::Duration;

use mooring_session::time::Timestamp;
use rusqlite::params;

use super::database::Database;
use super::row::{self, stored_number};
use super::schema::BUSY_TIMEOUT;
use crate::key::SessionKey;

/// Most ended tombstones deleted in one step, so that no command waits for long.
const PURGE_STEP: u32 = 64;
/// Timeout for the write lock. Work that has to wait longer is left to the next step.
const BESIDE_WITHIN: Duration = Duration::from_millis(5);

impl Database {
    /// Writes a use beside a record that was not written otherwise. It waits only briefly, and a failure fails no
    /// command.
    pub(super) fn note_use(&mut self, key: &SessionKey, used_at: Timestamp) {
        let rows_before = self.connection.total_changes();
        let noted = self.connection.busy_timeout(BESIDE_WITHIN).and_then(|()| {
            self.connection
                .prepare_cached(
                    "UPDATE sessions SET last_used_at = max(last_used_at, ?2) WHERE key = ?1",
                )?
                .execute(params![key.secret(), stored_number(used_at.unix_ms())])
        });
        let rows = (rows_before, self.connection.total_changes());
        self.recent_sessions.note_use(key, used_at, rows);
        let restored = self.connection.busy_timeout(BUSY_TIMEOUT);
        if let Err(error) = noted.and(restored) {
            tracing::debug!(%error, "a session's use could not be recorded");
        }
    }

    /// Whether expired rows may be cleaned up and deleted. Not for a minute after the wall clock was set: what looks
    /// expired may be in use, and the clock may be set back.
    pub(super) fn believes_the_clock(&mut self) -> bool {
        let mono = self.clock.mono();
        if let Some(step) = self.clock_watch.observe(self.clock.now(), mono) {
            tracing::warn!(
                by_ms = step.by_ms,
                "the wall clock was set: expired sessions are not cleaned up for a minute"
            );
        }
        self.clock_watch.reaping_allowed(mono)
    }

    /// Deletes some expired tombstones and params. Whatever fails is retried in the next step.
    pub(super) fn purge(&mut self) {
        self.written_since_purge = 0;
        if !self.believes_the_clock() {
            return;
        }
        match self.with_repair(|database| Ok(database.has_lapsed()?)) {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => {
                tracing::error!(%error, "expired-session scan failed");
                return;
            }
        }
        // If this fails, the default timeout applies.
        let _ = self.connection.busy_timeout(BESIDE_WITHIN);
        let dropped = self.write(|transaction, _, clock| {
            let now = stored_number(clock.now().unix_ms());
            let (highest, count): (Option<i64>, u32) = transaction.query_row(
                "SELECT max(highest_number), count(*) FROM (SELECT highest_number FROM sessions
                 WHERE tombstone_ends_at <= ?1 ORDER BY tombstone_ends_at, key LIMIT ?2)",
                params![now, PURGE_STEP],
                |row| Ok((row.get(0)?, row.get(1)?)),
            )?;
            transaction.execute(
                "DELETE FROM sessions WHERE key IN (SELECT key FROM sessions
                 WHERE tombstone_ends_at <= ?1 ORDER BY tombstone_ends_at, key LIMIT ?2)",
                params![now, PURGE_STEP],
            )?;
            if let Some(highest) = highest {
                row::raise_floor(transaction, highest)?;
            }
            transaction.execute(
                "DELETE FROM inits WHERE digest IN
                 (SELECT digest FROM inits WHERE lapses_at <= ?1 LIMIT ?2)",
                params![now, PURGE_STEP],
            )?;
            transaction.execute(
                "DELETE FROM rates WHERE name IN
                 (SELECT name FROM rates WHERE lapses_at <= ?1 LIMIT ?2)",
                params![now, PURGE_STEP],
            )?;
            transaction.execute(
                "DELETE FROM histories WHERE session IN
                 (SELECT session FROM histories WHERE lapses_at <= ?1 LIMIT ?2)",
                params![now, PURGE_STEP],
            )?;
            Ok(count)
        });
        if let Err(error) = self.connection.busy_timeout(BUSY_TIMEOUT) {
            tracing::debug!(%error, "busy timeout could not be restored");
        }
        match dropped {
            Ok(0) => {}
            Ok(count) => tracing::debug!(count, "ended tombstones deleted"),
            Err(error) => tracing::error!(%error, "ended tombstones could not be deleted"),
        }
    }

    /// Whether there is anything to delete: reading needs no write lock.
    fn has_lapsed(&self) -> rusqlite::Result<bool> {
        self.connection
            .prepare_cached(
                "SELECT EXISTS (SELECT 1 FROM sessions WHERE tombstone_ends_at <= ?1)
                     OR EXISTS (SELECT 1 FROM inits WHERE lapses_at <= ?1)
                     OR EXISTS (SELECT 1 FROM rates WHERE lapses_at <= ?1)
                     OR EXISTS (SELECT 1 FROM histories WHERE lapses_at <= ?1)",
            )?
            .query_row([stored_number(self.clock.now().unix_ms())], |row| {
                row.get(0)
            })
    }
}
