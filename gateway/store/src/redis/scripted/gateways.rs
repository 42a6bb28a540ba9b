//! Which gateways are alive: their heartbeats, as this gateway has read them.
//!
//! The table is read with a command if it was not for [`FRESH_FOR`]. Invariant: that a gateway is dead is decided only
//! on a table that was read with the same command. After an outage, in which nobody could beat, those that lived before it
//! count as alive for [`WORKER_GRACE`].

use std::cell::Cell;
use std::collections::HashMap;
use std::time::{Duration, Instant};

use mooring_session::context::Liveness;
use mooring_session::names::{Address, WorkerId};
use mooring_session::time::{Millis, Monotonic, Timestamp};
use mooring_session::workers::{Beat, Drain, Workers};

use super::script::HashFields;
use crate::workers::WORKER_GRACE;

/// How long a table that was read is used, except to decide that a gateway is dead.
const FRESH_FOR: Duration = Duration::from_millis(100);
/// How long the row of a silent gateway is kept, so that it is still listed.
const KEPT_FOR: Millis = Millis::new(60 * 60 * 1_000);
/// Most rows that one heartbeat deletes.
const DELETED_MAX: usize = 16;

/// The gateways that this process knows.
#[derive(Debug)]
pub(super) struct KnownGateways {
    pub(super) workers: Workers,
    rows: HashMap<WorkerId, Row>,
    read_at: Option<Instant>,
    /// By the server's clock, and over which connection.
    read_over: Option<(Monotonic, u64)>,
}

/// A row of the table: one gateway's last heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    address: Address,
    ttl: Millis,
    last_beat_ms: u64,
    state: RowState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case", const_into_str)]
enum RowState {
    Serving,
    Draining,
    Gone,
}

impl Row {
    fn of(beat: &Beat, now: Timestamp) -> Self {
        Self {
            address: beat.address.clone(),
            ttl: beat.ttl,
            last_beat_ms: now.unix_ms(),
            state: match beat.drain {
                Drain::Serving => RowState::Serving,
                Drain::Draining => RowState::Draining,
            },
        }
    }

    /// The heartbeat, as one that lasts for `ttl`.
    fn beat(&self, worker: &WorkerId, ttl: Millis) -> Beat {
        Beat {
            worker: worker.clone(),
            address: self.address.clone(),
            ttl,
            drain: match self.state {
                RowState::Draining => Drain::Draining,
                RowState::Serving | RowState::Gone => Drain::Serving,
            },
        }
    }

    const fn ends_at(&self) -> Monotonic {
        Monotonic::from_ms(self.last_beat_ms.saturating_add(self.ttl.get()))
    }

    fn encode(&self) -> String {
        let (address, state) = (&self.address, self.state.into_str());
        format!("{state} {} {} {address}", self.last_beat_ms, self.ttl.get())
    }

    fn decode(value: &[u8]) -> Option<Self> {
        let mut words = std::str::from_utf8(value).ok()?.split(' ');
        let state = words.next()?.parse().ok()?;
        let last_beat_ms = words.next()?.parse().ok()?;
        let ttl = Millis::new(words.next()?.parse().ok()?);
        let address = Address::parse(words.next()?.as_bytes()).ok()?;
        Some(Self {
            address,
            ttl,
            last_beat_ms,
            state,
        })
    }
}

impl KnownGateways {
    pub(super) fn new() -> Self {
        Self {
            workers: Workers::new(Monotonic::default(), WORKER_GRACE),
            rows: HashMap::new(),
            read_at: None,
            read_over: None,
        }
    }

    /// Whether the table need not be read to see who is alive.
    pub(super) fn is_fresh(&self) -> bool {
        (self.read_at).is_some_and(|read_at| read_at.elapsed() < FRESH_FOR)
    }

    /// Takes in the table, as it was at `now` over the connection of this number. Rows that cannot be read, which must have
    /// been edited by hand, are skipped.
    pub(super) fn note_table(&mut self, table: &HashFields, now: Monotonic, connection: u64) {
        let mut rows: Vec<(WorkerId, Row)> = (table.iter())
            .filter_map(|(worker, row)| Some((WorkerId::parse(worker).ok()?, Row::decode(row)?)))
            .collect();
        // The later boot of a name replaces the earlier one.
        rows.sort_by_key(|(_, row)| row.last_beat_ms);
        for (worker, row) in &rows {
            if self.rows.get(worker) == Some(row) {
                continue;
            }
            let mono = Monotonic::from_ms(row.last_beat_ms);
            let at = Timestamp::from_unix_ms(row.last_beat_ms);
            let beat = row.beat(worker, row.ttl);
            // A boot that a later one has replaced is refused, and stays dead.
            if self.workers.beat(beat, mono, at).is_ok() && row.state == RowState::Gone {
                self.workers.gone(worker, mono);
            }
        }
        let before = self.read_over.replace((now, connection));
        if let Some((seen_at, former)) = before
            && former != connection
        {
            for (worker, row) in &rows {
                let ends_at = row.ends_at();
                if row.state != RowState::Gone && seen_at < ends_at && ends_at <= now {
                    let at = Timestamp::from_unix_ms(row.last_beat_ms);
                    // The same: a later boot stays the living one.
                    drop(self.workers.beat(row.beat(worker, WORKER_GRACE), now, at));
                }
            }
        }
        self.rows = rows.into_iter().collect();
        self.read_at = Some(Instant::now());
    }

    /// The row of a heartbeat that was accepted at `now`.
    pub(super) fn note_beat(&mut self, beat: &Beat, now: Timestamp) -> String {
        let row = Row::of(beat, now);
        let text = row.encode();
        self.rows.insert(beat.worker.clone(), row);
        text
    }

    /// The row of a gateway that stopped; none if it has sent no heartbeat.
    pub(super) fn note_gone(&mut self, worker: &WorkerId) -> Option<String> {
        let row = self.rows.get_mut(worker)?;
        row.state = RowState::Gone;
        Some(row.encode())
    }

    /// The rows of gateways that have been silent for long.
    pub(super) fn forgotten(&mut self, now: Timestamp) -> Vec<WorkerId> {
        let is_old = |row: &Row| row.ends_at().plus(KEPT_FOR).ms() < now.unix_ms();
        let old = self.rows.iter().filter(|(_, row)| is_old(row));
        let old: Vec<WorkerId> = old
            .map(|(worker, _)| worker.clone())
            .take(DELETED_MAX)
            .collect();
        for worker in &old {
            self.rows.remove(worker);
        }
        old
    }
}

/// The gateways at one moment, which notes whether one of them was found dead.
pub(super) struct GatewaysAt<'a> {
    pub(super) workers: &'a dyn Liveness,
    pub(super) has_found_dead: Cell<bool>,
}

impl Liveness for GatewaysAt<'_> {
    fn is_alive(&self, worker: &str) -> bool {
        let is_alive = self.workers.is_alive(worker);
        if !is_alive {
            self.has_found_dead.set(true);
        }
        is_alive
    }

    fn is_draining(&self, worker: &str) -> bool {
        self.workers.is_draining(worker)
    }

    fn address(&self, worker: &str) -> Option<&str> {
        self.workers.address(worker)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    #[test]
    fn who_lived_before_an_outage_is_not_dead_at_once_after_it() {
        let row = |state: &str, beat_ms: u64, name: &str| {
            let row = format!("{state} {beat_ms} 1000 127.0.0.1:1");
            (name.as_bytes().to_vec(), row.into_bytes())
        };
        let table = [
            row("serving", 10_000, "living:1"),
            row("gone", 10_000, "gone:1"),
            row("serving", 1_000, "dead:1"),
        ]
        .to_vec();
        let mut gateways = KnownGateways::new();
        let is_alive = |gateways: &KnownGateways, worker: &str, mono: u64| {
            gateways
                .workers
                .at(Monotonic::from_ms(mono))
                .is_alive(worker)
        };
        gateways.note_table(&table, Monotonic::from_ms(10_500), 1);
        gateways.note_table(&table, Monotonic::from_ms(20_000), 1);
        assert!(!is_alive(&gateways, "living:1", 20_000), "no outage");
        let mut gateways = KnownGateways::new();
        gateways.note_table(&table, Monotonic::from_ms(10_500), 1);
        gateways.note_table(&table, Monotonic::from_ms(20_000), 2);
        let ends_at = 20_000 + WORKER_GRACE.get();
        assert!(is_alive(&gateways, "living:1", ends_at - 1));
        assert!(!is_alive(&gateways, "living:1", ends_at));
        for dead in ["gone:1", "dead:1"] {
            assert!(!is_alive(&gateways, dead, 20_000), "{dead}");
        }
    }
}
