//! REAP over the file: the tombstones that still hold something and that no process is cleaning up.

use mooring_session::context::Liveness;
use mooring_session::names::WorkerId;
use mooring_session::record::{Record, Standing};
use mooring_session::time::Timestamp;
use rusqlite::params;

use super::database::Database;
use super::file::MemoryUse;
use super::row::{self, stored_number};
use super::{EmbeddedStore, TransactionError};
use crate::error::StoreError;
use crate::key::{Family, SessionKey};
use crate::query::PAGE_MAX;

/// Most rows that one call looks at. Those that others own or clean up are among them.
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
        self.ask(move |database| {
            database.mended(|database| database.reap(&worker, family, count, &prefix))
        })
        .await
    }
}

impl Database {
    /// Those that have waited longest come first. Where more of them than one call looks at are others', of another
    /// family or put off, the next call for this family continues behind them, and from the front again when it has come
    /// to the end.
    fn reap(
        &mut self,
        worker: &WorkerId,
        family: Family,
        count: usize,
        prefix: &str,
    ) -> Result<Vec<SessionKey>, TransactionError> {
        // A copy in memory does not see that others use what it takes for over.
        if self.connection.memory_use() == Some(MemoryUse::Copy) {
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

/// What is owned is named to its owner while that lives, and to anybody when it is dead: as the index names it.
fn is_due(record: &Record, worker: &WorkerId, workers: &dyn Liveness, now: Timestamp) -> bool {
    let is_being_cleaned = record.cleaning.as_ref().is_some_and(|it| it.is_live(now));
    let mut owners = record
        .bindings
        .values()
        .filter_map(|binding| binding.owner.as_ref());
    record.life.standing(now) != Standing::Active
        && !is_being_cleaned
        && !record.has_live_claim(now)
        && (owners.clone().any(|owner| owner == worker)
            || owners.all(|owner| !workers.is_alive(owner)))
}
