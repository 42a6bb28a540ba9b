//! The live workers, which the processes of one machine share through the file.
//!
//! Heartbeats of other processes arrive as rows with a wall-clock time, because no monotonic clock survives a restart.
//! The rules need monotonic times, so this process dates a heartbeat once, when it first reads it. From then on the
//! heartbeat expires by this process's monotonic clock. A heartbeat of a worker that is known is no older than the last
//! refresh. So neither setting the wall clock nor suspending the machine kills or revives a worker.
//!
//! While the file cannot be written, each process works in a copy of its own, which gets no heartbeats of others: who was
//! alive then counts as alive, so that nothing owned is taken from a live process, and for a while after the return.
//!
//! Invariant: rows are in the order in which boots appeared, so all processes agree which boot of a name is the latest.

use std::collections::HashMap;

use mooring_session::limits::RETIRED_BOOTS_MAX;
use mooring_session::names::{Address, WorkerId};
use mooring_session::time::{Millis, Monotonic, Timestamp};
use mooring_session::workers::{Beat, Drain, Workers};
use rusqlite::{Connection, Row, params};

use super::failure::TransactionError;
use super::file::MemoryUse;
use super::row::{read_number, stored_number};
use crate::clock::Clock;
use crate::workers::WORKER_GRACE;

/// How long the row of a silent worker is kept.
const FORGOTTEN_AFTER: Millis = Millis::new(7 * 24 * 60 * 60 * 1_000);

/// Boots of one name that are kept: the live one, and the retired ones that the rules remember.
const BOOTS_KEPT: i64 = RETIRED_BOOTS_MAX as i64 + 1;

/// Gone or silent workers that are kept: processes that serve a single client come and go all day.
const GONE_KEPT: i64 = 256;

/// The time to live of other workers while their heartbeats do not arrive.
const UNHEARD_TTL: Millis = Millis::new(u64::MAX);

/// Whether heartbeats of other processes arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heartbeats {
    Arrive,
    /// This process works in a copy.
    Missing,
}

/// The workers that this process knows, from the file and its own.
#[derive(Debug)]
pub(super) struct KnownWorkers {
    pub(super) workers: Workers,
    /// SQLite's `data_version` when the rows were last read. It changes when another connection commits.
    version: Option<i64>,
    /// When the rows were last known to be those below.
    refreshed_at: Monotonic,
    /// The rows when they were last read.
    rows: HashMap<Box<str>, WorkerBeat>,
    heartbeats: Heartbeats,
}

/// Distinguishes consecutive heartbeats of one worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct WorkerBeat {
    last_beat_at: u64,
    state: WorkerState,
}

/// The last state that a worker reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case", const_into_str)]
enum WorkerState {
    Serving,
    Draining,
    Gone,
}

impl Heartbeats {
    fn of(memory_use: Option<MemoryUse>) -> Self {
        match memory_use {
            Some(MemoryUse::Copy) => Self::Missing,
            Some(MemoryUse::Store) | None => Self::Arrive,
        }
    }
}

impl KnownWorkers {
    /// None yet. With a copy of the file, all that it names and that are not gone count as alive.
    pub(super) fn new(memory_use: Option<MemoryUse>, clock: &Clock) -> Self {
        Self {
            workers: Workers::new(clock.mono(), WORKER_GRACE),
            version: None,
            refreshed_at: clock.mono(),
            rows: HashMap::new(),
            heartbeats: Heartbeats::of(memory_use),
        }
    }

    /// Continues with the rows of another file or copy.
    pub(super) fn continue_from(&mut self, memory_use: Option<MemoryUse>, clock: &Clock) {
        self.version = None;
        let ttl = match (self.heartbeats, Heartbeats::of(memory_use)) {
            (_, Heartbeats::Missing) => UNHEARD_TTL,
            // Other processes may return to the file later than this one.
            (Heartbeats::Missing, Heartbeats::Arrive) => WORKER_GRACE,
            (Heartbeats::Arrive, Heartbeats::Arrive) => return,
        };
        self.heartbeats = Heartbeats::of(memory_use);
        let mono = clock.mono();
        let living = (self.workers.list(mono).into_iter()).filter(|view| view.alive);
        for view in living {
            let beat = Beat {
                worker: view.worker,
                address: view.address,
                ttl,
                drain: view.drain,
            };
            // It is alive with this address, so this is not refused.
            drop(self.workers.beat(beat, mono, view.last_beat_at));
        }
    }

    /// Reads what other processes have written since the last refresh. Returns SQLite's `data_version`.
    pub(super) fn refresh(
        &mut self,
        connection: &Connection,
        clock: &Clock,
    ) -> rusqlite::Result<i64> {
        let version = connection
            .prepare_cached("PRAGMA data_version")?
            .query_row([], |row| row.get(0))?;
        let mono = clock.mono();
        if self.version == Some(version) {
            self.refreshed_at = mono;
            return Ok(version);
        }
        let mut statement = connection.prepare_cached(
            "SELECT worker, address, ttl_ms, last_beat_at, state FROM workers ORDER BY ordinal",
        )?;
        let mut rows = statement.query([])?;
        let mut seen_now = HashMap::new();
        while let Some(row) = rows.next()? {
            if let Some((worker, seen)) = self.read_row(row, clock)? {
                seen_now.insert(worker, seen);
            }
        }
        self.rows = seen_now;
        self.refreshed_at = mono;
        self.version = Some(version);
        Ok(version)
    }

    /// Unreadable rows, which must have been edited by hand, are skipped: they name no worker.
    fn read_row(
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
        let known = self.rows.get(&name);
        if known == Some(&seen) {
            return Ok(Some((name, seen)));
        }
        let mono = clock.mono();
        let mut age_ms = clock.now().unix_ms().saturating_sub(last_beat_at);
        if known.is_some() {
            age_ms = age_ms.min(mono.ms().saturating_sub(self.refreshed_at.ms()));
        }
        let (Ok(worker), Ok(address)) = (
            WorkerId::parse(worker.as_bytes()),
            Address::parse(address.as_bytes()),
        ) else {
            return Ok(None);
        };
        let beat = Beat {
            worker: worker.clone(),
            address,
            ttl: match self.heartbeats {
                Heartbeats::Arrive => Millis::new(ttl_ms.saturating_sub(age_ms)),
                Heartbeats::Missing => UNHEARD_TTL,
            },
            drain: match seen.state {
                WorkerState::Draining => Drain::Draining,
                WorkerState::Serving | WorkerState::Gone => Drain::Serving,
            },
        };
        // A boot that a later row has replaced is refused, and stays dead.
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

    /// Records a heartbeat of a worker of this process, and writes it for the others.
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

    /// Records that a worker is gone, and writes that for the others. Returns whether it was alive.
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
