//! Which workers live, as the processes of one machine tell each other through the file.
//!
//! Other processes' beats arrive as rows with the wall-clock time of the beat, because no monotonic clock is shared
//! across a restart. The rules count on a monotonic clock, though, so a beat is dated only once, when this process
//! first sees it: from then on it lapses on this process's own monotonic clock, and a wall clock that is set while
//! processes run neither kills nor revives anybody.
//!
//! Invariant: the order of rows is the order in which boots appeared, so that every process agrees on which boot of a
//! name is the latest.

use std::collections::HashMap;

use mooring_session::limits::RETIRED_BOOTS_MAX;
use mooring_session::names::{Address, WorkerId};
use mooring_session::time::{Millis, Timestamp};
use mooring_session::workers::{Beat, Drain, Workers};
use rusqlite::{Connection, Row, params};

use super::TransactionError;
use super::row::{read_number, stored_number};
use crate::clock::Clock;
use crate::fleet::WORKER_GRACE;

/// How long the row of a worker that no longer beats is kept.
const FORGOTTEN_AFTER: Millis = Millis::new(7 * 24 * 60 * 60 * 1_000);

/// How many boots of one name are kept: the living one, and the earlier ones that the rules remember.
const BOOTS_KEPT: i64 = RETIRED_BOOTS_MAX as i64 + 1;

/// How many workers are kept that are gone or beat no more: processes that serve one client each come and go all day.
const GONE_KEPT: i64 = 256;

/// The workers this process has heard of, through the file and by itself.
#[derive(Debug)]
pub(super) struct KnownWorkers {
    pub(super) workers: Workers,
    /// SQLite's `data_version` when the rows were last read: it changes when another connection commits.
    version: Option<i64>,
    /// The rows as they were last read.
    rows: HashMap<Box<str>, WorkerBeat>,
}

/// What distinguishes one beat of a worker from its next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct WorkerBeat {
    last_beat_at: u64,
    state: WorkerState,
}

/// What a worker last said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case", const_into_str)]
enum WorkerState {
    Serving,
    Draining,
    Gone,
}

impl KnownWorkers {
    pub(super) fn new(clock: &Clock) -> Self {
        Self {
            workers: Workers::new(clock.mono(), WORKER_GRACE),
            version: None,
            rows: HashMap::new(),
        }
    }

    /// The next look is at another file, or at a copy.
    pub(super) const fn forget_version(&mut self) {
        self.version = None;
    }

    /// Takes in what other processes have written since the last look. Called inside a transaction.
    pub(super) fn refresh(
        &mut self,
        connection: &Connection,
        clock: &Clock,
    ) -> rusqlite::Result<()> {
        let version = connection.pragma_query_value(None, "data_version", |row| row.get(0))?;
        if self.version == Some(version) {
            return Ok(());
        }
        let mut statement = connection.prepare_cached(
            "SELECT worker, address, ttl_ms, last_beat_at, state FROM workers ORDER BY ordinal",
        )?;
        let mut rows = statement.query([])?;
        let mut seen_now = HashMap::new();
        while let Some(row) = rows.next()? {
            if let Some((worker, seen)) = self.take_in(row, clock)? {
                seen_now.insert(worker, seen);
            }
        }
        self.rows = seen_now;
        self.version = Some(version);
        Ok(())
    }

    /// Rows that a hand has made unreadable are passed over: they name no worker that could be asked for.
    fn take_in(
        &mut self,
        row: &Row<'_>,
        clock: &Clock,
    ) -> rusqlite::Result<Option<(Box<str>, WorkerBeat)>> {
        let (worker, address): (String, String) = (row.get(0)?, row.get(1)?);
        let (ttl_ms, last_beat_at) = (read_number(row, 2)?, read_number(row, 3)?);
        let seen = WorkerBeat {
            last_beat_at,
            state: (row.get_ref(4)?.as_str().unwrap_or_default())
                .parse()
                .unwrap_or(WorkerState::Serving),
        };
        let name = Box::from(worker.as_str());
        if self.rows.get(&name) == Some(&seen) {
            return Ok(Some((name, seen)));
        }
        let (Ok(worker), Ok(address)) = (
            WorkerId::parse(worker.as_bytes()),
            Address::parse(address.as_bytes()),
        ) else {
            return Ok(None);
        };
        let age_ms = clock.now().unix_ms().saturating_sub(last_beat_at);
        let beat = Beat {
            worker: worker.clone(),
            address,
            ttl: Millis::new(ttl_ms.saturating_sub(age_ms)),
            drain: match seen.state {
                WorkerState::Draining => Drain::Draining,
                WorkerState::Serving | WorkerState::Gone => Drain::Serving,
            },
        };
        // A boot that a later row has replaced is refused, and stays dead.
        let mono = clock.mono();
        if self
            .workers
            .beat(beat, mono, Timestamp::from_unix_ms(last_beat_at))
            .is_ok()
            && seen.state == WorkerState::Gone
        {
            self.workers.gone(&worker, mono);
        }
        Ok(Some((name, seen)))
    }

    /// Notes a beat of a worker of this process, and tells the others.
    pub(super) fn beat(
        &mut self,
        connection: &Connection,
        beat: Beat,
        clock: &Clock,
    ) -> Result<(), TransactionError> {
        let now = clock.now();
        let state = match beat.drain {
            Drain::Serving => WorkerState::Serving,
            Drain::Draining => WorkerState::Draining,
        };
        self.workers.beat(beat.clone(), clock.mono(), now)?;
        connection
            .prepare_cached(
                "INSERT INTO workers (worker, name, address, ttl_ms, last_beat_at, state)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)
                 ON CONFLICT (worker) DO UPDATE SET
                    address = excluded.address, ttl_ms = excluded.ttl_ms,
                    last_beat_at = excluded.last_beat_at, state = excluded.state",
            )?
            .execute(params![
                beat.worker.as_str(),
                beat.worker.name(),
                beat.address.as_str(),
                stored_number(beat.ttl.get()),
                stored_number(now.unix_ms()),
                state.into_str(),
            ])?;
        let is_new = !self.rows.contains_key(beat.worker.as_str());
        self.rows.insert(
            beat.worker.as_str().into(),
            WorkerBeat {
                last_beat_at: now.unix_ms(),
                state,
            },
        );
        if is_new {
            Self::forget_old_boots(connection, beat.worker.name(), now)?;
        }
        Ok(())
    }

    fn forget_old_boots(
        connection: &Connection,
        name: &str,
        now: Timestamp,
    ) -> rusqlite::Result<()> {
        connection.execute(
            "DELETE FROM workers WHERE name = ?1 AND ordinal NOT IN
                (SELECT ordinal FROM workers WHERE name = ?1 ORDER BY ordinal DESC LIMIT ?2)",
            params![name, BOOTS_KEPT],
        )?;
        connection.execute(
            "DELETE FROM workers WHERE (state = ?1 OR last_beat_at + ttl_ms < ?3) AND ordinal NOT IN
                (SELECT ordinal FROM workers WHERE state = ?1 OR last_beat_at + ttl_ms < ?3
                 ORDER BY ordinal DESC LIMIT ?2)",
            params![WorkerState::Gone.into_str(), GONE_KEPT, stored_number(now.unix_ms())],
        )?;
        let oldest = now.unix_ms().saturating_sub(FORGOTTEN_AFTER.get());
        connection.execute(
            "DELETE FROM workers WHERE last_beat_at < ?1",
            [stored_number(oldest)],
        )?;
        Ok(())
    }

    /// Notes that a worker is gone, and tells the others. Answers whether it was alive.
    pub(super) fn gone(
        &mut self,
        connection: &Connection,
        worker: &WorkerId,
        clock: &Clock,
    ) -> rusqlite::Result<bool> {
        let was_alive = self.workers.gone(worker, clock.mono());
        connection.execute(
            "UPDATE workers SET state = ?2 WHERE worker = ?1",
            params![worker.as_str(), WorkerState::Gone.into_str()],
        )?;
        if let Some(seen) = self.rows.get_mut(worker.as_str()) {
            seen.state = WorkerState::Gone;
        }
        Ok(was_alive)
    }
}
