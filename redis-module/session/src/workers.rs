//! Which workers are alive, as known to one node from their beats.
//!
//! A worker is a name and the boot id of one run of it. It is alive from a beat until that beat's TTL lapses on the
//! node's monotonic clock. Invariant: of one name at most one boot is alive, and a replaced boot is refused while the
//! later one is alive. A living worker keeps its address.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};

use crate::context::Liveness;
use crate::limits::{RETIRED_BOOTS_MAX, WORKERS_MAX};
use crate::names::{Address, WorkerId};
use crate::refusal::{Busy, Refusal, Stale};
use crate::time::{Millis, Monotonic, Timestamp};

/// What a node knows of the workers.
#[derive(Debug)]
pub struct Workers {
    heard: BTreeMap<Box<str>, WorkerEntry>,
    /// Workers known from records only, without a beat, with the end of their grace period. In a `RefCell` because a
    /// lookup adds them.
    met: RefCell<BTreeMap<Box<str>, Monotonic>>,
    /// Until then an unknown worker counts as alive.
    grace_until: Monotonic,
    grace: Millis,
}

/// A worker that has sent a beat.
#[derive(Debug)]
struct WorkerEntry {
    worker: WorkerId,
    address: Address,
    lives_until: Monotonic,
    last_beat_at: Timestamp,
    drain: Drain,
    retired_boots: VecDeque<Box<str>>,
}

/// Whether a worker accepts new owned bindings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drain {
    /// It does.
    Serving,
    /// It only finishes its current ones.
    Draining,
}

/// One worker, as returned to callers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerView {
    /// Name and boot id.
    pub worker: WorkerId,
    /// The address at which its peers reach it.
    pub address: Address,
    /// Whether its last beat has not lapsed.
    pub alive: bool,
    /// Whether it is draining.
    pub drain: Drain,
    /// When it last sent a beat.
    pub last_beat_at: Timestamp,
}

/// One beat: a worker announces that it is alive.
#[derive(Clone, Debug)]
pub struct Beat {
    /// The worker.
    pub worker: WorkerId,
    /// The address at which its peers reach it.
    pub address: Address,
    /// How long the worker is alive after this beat.
    pub ttl: Millis,
    /// Whether it accepts new owned bindings.
    pub drain: Drain,
}

impl Workers {
    /// A node that starts (or was promoted) at `started`, knows no worker yet, and counts all as alive for `grace`.
    #[must_use]
    pub fn new(started: Monotonic, grace: Millis) -> Self {
        Self {
            heard: BTreeMap::new(),
            met: RefCell::default(),
            grace_until: started.plus(grace),
            grace,
        }
    }

    /// Restarts the grace period of unknown workers, at `from`.
    pub fn renew_grace(&mut self, from: Monotonic) {
        self.met.get_mut().clear();
        self.grace_until = from.plus(self.grace);
    }

    /// Changes the grace period of workers that are still unknown.
    pub fn set_grace(&mut self, grace: Millis) {
        self.grace = grace;
    }

    /// Records a beat.
    ///
    /// # Errors
    /// `STALE` for a boot that was replaced by a later one that is alive; `BUSY` if the worker is alive with another
    /// address; `LIMIT` if too many workers are alive.
    pub fn beat(&mut self, beat: Beat, mono: Monotonic, now: Timestamp) -> Result<(), Refusal> {
        let name = beat.worker.name();
        let known = self.heard.contains_key(name);
        if !known && self.heard.len() >= WORKERS_MAX {
            self.forget_longest_dead(mono)?;
        }
        let mut retired_boots = VecDeque::new();
        if let Some(heard) = self.heard.get_mut(name) {
            let is_alive = mono < heard.lives_until;
            let is_same = heard.worker == beat.worker;
            let is_retired = |boot: &str| *boot == *beat.worker.boot();
            if is_alive && heard.retired_boots.iter().any(|boot| is_retired(boot)) {
                return Err(Refusal::Stale(Stale::Boot));
            }
            if is_alive && is_same && heard.address != beat.address {
                return Err(Refusal::Busy(Busy::Address));
            }
            retired_boots = std::mem::take(&mut heard.retired_boots);
            retired_boots.retain(|boot| !is_retired(boot));
            if !is_same {
                retired_boots.push_back(heard.worker.boot().into());
                if retired_boots.len() > RETIRED_BOOTS_MAX {
                    retired_boots.pop_front();
                }
            }
        }
        self.met.get_mut().remove(beat.worker.as_str());
        self.heard.insert(
            name.into(),
            WorkerEntry {
                lives_until: mono.plus(beat.ttl),
                last_beat_at: now,
                address: beat.address,
                drain: beat.drain,
                worker: beat.worker,
                retired_boots,
            },
        );
        Ok(())
    }

    /// Records that a worker has stopped. A boot that is not the current one changes nothing; an unknown worker loses
    /// its grace period. Returns whether it was alive.
    pub fn gone(&mut self, worker: &WorkerId, mono: Monotonic) -> bool {
        match self.heard.get_mut(worker.name()) {
            Some(heard) if heard.worker == *worker => {
                let was_alive = mono < heard.lives_until;
                heard.lives_until = Monotonic::default();
                was_alive
            }
            Some(_) => false,
            None => {
                let was_alive = self.is_unknown_alive(worker, mono);
                if let Some(until) = self.met.get_mut().get_mut(worker.as_str()) {
                    *until = Monotonic::default();
                }
                was_alive
            }
        }
    }

    /// All workers that sent a beat, by name.
    #[must_use]
    pub fn list(&self, mono: Monotonic) -> Vec<WorkerView> {
        self.heard
            .values()
            .map(|heard| WorkerView {
                worker: heard.worker.clone(),
                address: heard.address.clone(),
                alive: mono < heard.lives_until,
                drain: heard.drain,
                last_beat_at: heard.last_beat_at,
            })
            .collect()
    }

    /// The workers at one moment.
    #[must_use]
    pub const fn at(&self, mono: Monotonic) -> WorkersAt<'_> {
        WorkersAt {
            workers: self,
            mono,
        }
    }

    fn forget_longest_dead(&mut self, mono: Monotonic) -> Result<(), Refusal> {
        let longest_dead = self
            .heard
            .iter()
            .filter(|(_, heard)| heard.lives_until <= mono)
            .min_by_key(|(_, heard)| heard.last_beat_at)
            .map(|(name, _)| name.clone())
            .ok_or(Refusal::Limit {
                what: "workers",
                value: WORKERS_MAX,
            })?;
        self.heard.remove(&longest_dead);
        Ok(())
    }

    /// Whether a worker without a beat counts as alive: from the first lookup until its grace period is over. Beyond
    /// the limit of remembered workers, only the node's own grace period counts.
    fn is_unknown_alive(&self, worker: &str, mono: Monotonic) -> bool {
        let mut met = self.met.borrow_mut();
        if let Some(until) = met.get(worker) {
            return mono < *until;
        }
        if met.len() < WORKERS_MAX {
            met.insert(worker.into(), mono.plus(self.grace));
            return true;
        }
        mono < self.grace_until
    }
}

/// [`Workers`] at one moment.
pub struct WorkersAt<'a> {
    workers: &'a Workers,
    mono: Monotonic,
}

impl WorkersAt<'_> {
    /// The moment.
    #[must_use]
    pub const fn mono(&self) -> Monotonic {
        self.mono
    }

    fn heard(&self, worker: &str) -> Option<&WorkerEntry> {
        self.workers
            .heard
            .get(WorkerId::name_of(worker))
            .filter(|heard| heard.worker.as_str() == worker)
    }
}

impl Liveness for WorkersAt<'_> {
    fn is_alive(&self, worker: &str) -> bool {
        match self.workers.heard.get(WorkerId::name_of(worker)) {
            Some(heard) if heard.worker.as_str() == worker => self.mono < heard.lives_until,
            // Another boot of this name has sent a beat: a name has one living boot, and a new boot sends a beat before
            // it binds.
            Some(_) => false,
            None => self.workers.is_unknown_alive(worker, self.mono),
        }
    }

    fn is_draining(&self, worker: &str) -> bool {
        self.heard(worker)
            .is_some_and(|heard| heard.drain == Drain::Draining)
    }

    fn address(&self, worker: &str) -> Option<&str> {
        self.heard(worker).map(|heard| heard.address.as_str())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    const GRACE: Millis = Millis::new(15_000);

    fn worker(id: &str) -> WorkerId {
        WorkerId::parse(id.as_bytes()).unwrap()
    }

    fn beat(workers: &mut Workers, id: &str, mono: u64) -> Result<(), Refusal> {
        workers.beat(
            Beat {
                worker: worker(id),
                address: Address::parse(b"127.0.0.1:9").unwrap(),
                ttl: Millis::new(1_500),
                drain: Drain::Serving,
            },
            Monotonic::from_ms(mono),
            Timestamp::from_unix_ms(mono),
        )
    }

    fn is_alive(workers: &Workers, id: &str, mono: u64) -> bool {
        workers.at(Monotonic::from_ms(mono)).is_alive(&worker(id))
    }

    #[test]
    fn a_worker_lives_until_its_beat_lapses() {
        let mut workers = Workers::new(Monotonic::from_ms(0), GRACE);
        beat(&mut workers, "w:1", 100).unwrap();
        assert!(is_alive(&workers, "w:1", 1_599));
        assert!(!is_alive(&workers, "w:1", 1_600));
        beat(&mut workers, "w:1", 2_000).unwrap();
        assert!(is_alive(&workers, "w:1", 2_001));
        assert!(workers.gone(&worker("w:1"), Monotonic::from_ms(2_001)));
        assert!(!is_alive(&workers, "w:1", 2_001));
    }

    #[test]
    fn a_new_boot_kills_the_old_one_while_it_lives() {
        let mut workers = Workers::new(Monotonic::from_ms(0), GRACE);
        beat(&mut workers, "w:1", 100).unwrap();
        beat(&mut workers, "w:2", 200).unwrap();
        assert!(!is_alive(&workers, "w:1", 201));
        assert!(is_alive(&workers, "w:2", 201));
        assert_eq!(
            beat(&mut workers, "w:1", 300),
            Err(Refusal::Stale(Stale::Boot))
        );
        assert!(!workers.gone(&worker("w:1"), Monotonic::from_ms(301)));
        assert!(is_alive(&workers, "w:2", 301));
    }

    /// Two processes have one name. Whoever is left over has it.
    #[test]
    fn a_replaced_boot_comes_back_once_the_later_one_is_gone() {
        let mut workers = Workers::new(Monotonic::from_ms(0), GRACE);
        beat(&mut workers, "w:1", 100).unwrap();
        beat(&mut workers, "w:2", 200).unwrap();
        assert!(workers.gone(&worker("w:2"), Monotonic::from_ms(300)));
        beat(&mut workers, "w:1", 400).unwrap();
        assert!(is_alive(&workers, "w:1", 401));
        let stale = Err(Refusal::Stale(Stale::Boot));
        assert_eq!(beat(&mut workers, "w:2", 500), stale, "now it is the other");
        assert!(is_alive(&workers, "w:1", 501));
        beat(&mut workers, "w:2", 1_900).unwrap();
        assert!(is_alive(&workers, "w:2", 1_901), "the first one has lapsed");
    }

    #[test]
    fn a_stranger_lives_for_its_grace_from_first_sight() {
        let workers = Workers::new(Monotonic::from_ms(0), GRACE);
        assert!(is_alive(&workers, "w:1", 50_000));
        assert!(is_alive(&workers, "w:1", 64_999));
        assert!(!is_alive(&workers, "w:1", 65_000));
    }
}
