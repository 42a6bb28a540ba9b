//! Records in memory, and the rules run over them.
//!
//! Invariants: bounded; a record is dropped at its tombstone's end, as Redis drops the key, and the numbers it used are
//! not used again. No cap is kept and no load is known: they are those of a fleet.

use std::collections::HashMap;

use mooring_session::Tuning;
use mooring_session::context::{Context, Liveness, NoIndex};
use mooring_session::record::Record;
use mooring_session::refusal::Refusal;
use mooring_session::time::{Millis, Timestamp};

use crate::key::SessionKey;
use crate::transition::Transition;

/// Most records in memory.
pub(super) const SESSIONS_MAX: usize = 100_000;
/// A full map is searched for ended tombstones at most this often, because the search reads all of it.
const SWEEP_EVERY: Millis = Millis::new(1_000);

/// The records of one process.
#[derive(Debug)]
pub(super) struct Sessions {
    records: HashMap<SessionKey, Record>,
    records_max: usize,
    floor: u64,
    tuning: Tuning,
    sweep_at: Timestamp,
}

impl Default for Sessions {
    fn default() -> Self {
        Self::with_room_for(SESSIONS_MAX)
    }
}

impl Sessions {
    fn with_room_for(records_max: usize) -> Self {
        Self {
            records: HashMap::new(),
            records_max,
            floor: 0,
            tuning: Tuning::default(),
            sweep_at: Timestamp::default(),
        }
    }

    /// Carries out one transition.
    ///
    /// # Errors
    /// What the rules refuse; `LIMIT sessions` where a new record would be one too many.
    pub(super) fn run<T: Transition>(
        &mut self,
        key: &SessionKey,
        request: &T,
        now: Timestamp,
        workers: &dyn Liveness,
    ) -> Result<T::Reply, Refusal> {
        self.make_room(now);
        let mut slot = self.take(key, now);
        let numbers = slot.as_ref().map(highest_number);
        let context = Context {
            now,
            floor: self.floor,
            tuning: &self.tuning,
            workers,
            node: &NoIndex,
        };
        let decided = request.decide(&mut slot, key.secret().as_bytes(), &context);
        match (slot, numbers) {
            (Some(_), None) if self.is_full() => {
                return Err(Refusal::Limit {
                    what: "sessions",
                    value: self.records_max,
                });
            }
            (Some(record), _) => {
                self.records.insert(key.clone(), record);
            }
            (None, Some(numbers)) => self.floor = self.floor.max(numbers),
            (None, None) => {}
        }
        Ok(decided?.reply)
    }

    /// Stores a record that was read elsewhere. Returns whether there was room.
    pub(super) fn adopt(&mut self, key: &SessionKey, record: Record, now: Timestamp) -> bool {
        self.make_room(now);
        let has_room = self.records.contains_key(key) || !self.is_full();
        if has_room {
            self.records.insert(key.clone(), record);
        }
        has_room
    }

    pub(super) fn record(&self, key: &SessionKey) -> Option<&Record> {
        self.records.get(key)
    }

    pub(super) fn forget(&mut self, key: &SessionKey) {
        if let Some(record) = self.records.remove(key) {
            self.floor = self.floor.max(highest_number(&record));
        }
    }

    /// Takes the record out, unless its tombstone has ended.
    fn take(&mut self, key: &SessionKey, now: Timestamp) -> Option<Record> {
        let record = self.records.remove(key)?;
        if is_over(&record, &self.tuning, now) {
            self.floor = self.floor.max(highest_number(&record));
            return None;
        }
        Some(record)
    }

    fn is_full(&self) -> bool {
        self.records.len() >= self.records_max
    }

    /// Drops ended tombstones if the memory is full.
    fn make_room(&mut self, now: Timestamp) {
        if !self.is_full() || now < self.sweep_at {
            return;
        }
        self.sweep_at = now.plus(SWEEP_EVERY);
        let Self { floor, tuning, .. } = self;
        self.records.retain(|_, record| {
            let is_kept = !is_over(record, tuning, now);
            if !is_kept {
                *floor = (*floor).max(highest_number(record));
            }
            is_kept
        });
    }
}

fn is_over(record: &Record, tuning: &Tuning, now: Timestamp) -> bool {
    record.tombstone_ends_at(tuning) <= now
}

fn highest_number(record: &Record) -> u64 {
    record.generation.max(record.highest_epoch)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use mooring_session::time::Monotonic;
    use mooring_session::workers::Workers;

    use super::*;
    use crate::test_support::requests as make;
    use crate::transition::Get;

    #[test]
    fn a_full_memory_refuses_new_sessions_until_tombstones_end() {
        let mut sessions = Sessions::with_room_for(2);
        let workers = Workers::new(Monotonic::default(), SWEEP_EVERY);
        let mut create = |name: &str, now: Timestamp| {
            let workers = workers.at(Monotonic::default());
            let key = make::key(name);
            let created = sessions.run(&key, &make::create(name), now, &workers);
            let found = sessions.run(&key, &Get, now, &workers);
            assert_eq!(created.is_ok(), found.is_ok());
            created.map(|created| created.record.generation)
        };
        let now = Timestamp::from_unix_ms(1_700_000_000_000);
        let first = create("a", now).unwrap();
        create("b", now).unwrap();
        assert_eq!(
            create("c", now),
            Err(Refusal::Limit {
                what: "sessions",
                value: 2
            })
        );
        assert_eq!(create("a", now), Ok(first));
        create("c", now.plus(Millis::new(3 * 3_600_000))).unwrap();
        // A clock that steps back repeats no number.
        assert!(create("a", now).unwrap() > first);
    }
}
