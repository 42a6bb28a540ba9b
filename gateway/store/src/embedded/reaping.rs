//! REAP on the file: tombstones with open resources that no process is cleaning up.

use mooring_session::names::WorkerId;
use rusqlite::params;

use super::EmbeddedStore;
use super::database::Database;
use super::failure::TransactionError;
use super::file::MemoryUse;
use super::row::{self, stored_number};
use crate::error::StoreError;
use crate::key::{Family, SessionKey};
use crate::query::PAGE_MAX;
use crate::reaping::is_due;

/// Most rows that one call examines, including those that other workers own or clean up.
const EXAMINED_MAX: u32 = 2_000;

impl EmbeddedStore {
    pub(crate) async fn reap(
        &self,
        worker: &WorkerId,
        family: Family,
        count: usize,
    ) -> Result<Vec<SessionKey>, StoreError> {
        let (worker, prefix) = (worker.clone(), self.prefix.to_string());
        let count = count.min(PAGE_MAX);
        self.with_repair(move |database| database.reap(&worker, family, count, &prefix))
            .await
    }
}

impl Database {
    /// The oldest come first. If one call examines its maximum of rows that belong to others or other families or are
    /// postponed, the next call for this family continues after them, and starts over after reaching the end.
    fn reap(
        &mut self,
        worker: &WorkerId,
        family: Family,
        count: usize,
        prefix: &str,
    ) -> Result<Vec<SessionKey>, TransactionError> {
        // A copy in memory does not show whether others still use sessions that look expired in it.
        if self.connection.memory_use() == Some(MemoryUse::Copy) {
            return Ok(Vec::new());
        }
        if !self.believes_the_clock() {
            return Ok(Vec::new());
        }
        let transaction = self.connection.transaction()?;
        self.known_workers.refresh(&transaction, &self.clock)?;
        let now = self.clock.now();
        let workers = self.known_workers.workers.at(self.clock.mono());
        let mut statement = transaction.prepare_cached(
            "SELECT key, fields, over_at, ordinal FROM sessions
             WHERE holds = 1 AND over_at <= ?1 AND tombstone_ends_at > ?1 AND (over_at, ordinal) > (?3, ?4)
             ORDER BY over_at, ordinal LIMIT ?2",
        )?;
        let (from, mut last) = (self.reaped_to.remove(&family), None);
        let (over_at, ordinal) = from.unwrap_or((-1, 0));
        let mut rows = statement.query(params![
            stored_number(now.unix_ms()),
            EXAMINED_MAX,
            over_at,
            ordinal
        ])?;
        let (mut keys, mut examined) = (Vec::new(), 0);
        while keys.len() < count
            && let Some(row) = rows.next()?
        {
            examined += 1;
            last = Some((row.get(2)?, row.get(3)?));
            let (key, json): (String, String) = (row.get(0)?, row.get(1)?);
            let record = row::parse(&json).and_then(|fields| row::decode(&fields));
            if let (Some(key), Ok(record)) = (SessionKey::named(prefix, key.as_bytes()), record)
                && key.family() == family
                && is_due(&record, worker, &workers, now)
                && !self.queues.holds(&key, None)
            {
                keys.push(key);
            }
        }
        let is_full = keys.len() >= count;
        if let Some(last) = last
            && (examined >= EXAMINED_MAX || (is_full && from.is_some()))
        {
            self.reaped_to.insert(family, last);
        }
        Ok(keys)
    }
}
