//! Retention: records are removed by age, number and size, a bounded number of files at a time, by whichever gateway is
//! first.
//!
//! Invariant: the file that lists know a run by goes first, so that no half of a record is ever shown; what a killed
//! gateway leaves of one goes with the next pass. Running runs are pruned by age only.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use mooring_session::names::ServerName;
use mooring_session::time::Millis;

use super::events::EVENTS;
use super::id::{RunId, day_directory, days};
use super::list::BEGUN;
use super::quota::{QuotaCount, RecordSizes};
use super::{Records, RecordsError};
use crate::volume::Area;

/// Most files removed in one pass.
const REMOVED_MAX: usize = 5_000;
/// Most events kept of one server.
const EVENTS_KEPT_MAX: usize = 50_000;
/// How long files without the one that lists know a run by are left alone: it is written after its code.
const LIES_MS: u64 = 60 * 60 * 1_000;
/// How often one gateway of the fleet prunes.
const INTERVAL_MS: u64 = 30 * 1_000;
/// The part of one user's quota that a process records before it prunes early.
const RECORDED_PART: u64 = 4;
/// The lock held while pruning. Its modification time is that of the last pass that left nothing to do.
const LOCK: &str = "prune.lock";

/// The result of a prune pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PruneOutcome {
    /// Runs whose record is gone.
    pub(crate) runs: usize,
    /// Events that are gone.
    pub(crate) events: usize,
    /// Whether there is more to do than one pass may.
    pub(crate) is_more: bool,
}

struct Pass<'a> {
    area: &'a Area,
    now_ms: u64,
    kept_ms: u64,
    files: usize,
    quota: QuotaCount,
    pruned: PruneOutcome,
}

impl Records {
    /// Whether the last pass was a while ago, at `now_ms` (milliseconds since 1970), or this process has recorded a large
    /// part of one user's bytes.
    ///
    /// # Errors
    /// The volume could not be read.
    pub(crate) fn is_prune_due(
        &self,
        server: &ServerName,
        now_ms: u64,
    ) -> Result<bool, RecordsError> {
        let pruned_at_ms = self
            .read_area(server)?
            .modified_at_ms(LOCK)
            .map_err(RecordsError::Read)?;
        let recorded_bytes = self.recorded_bytes().get(server).copied().unwrap_or(0);
        Ok(
            recorded_bytes >= self.settings().user_runs_kept_bytes / RECORDED_PART
                || pruned_at_ms.is_none_or(|at_ms| now_ms.saturating_sub(at_ms) >= INTERVAL_MS),
        )
    }

    /// Removes records and events that are too old or too many at `now_ms` (milliseconds since 1970). Does nothing while
    /// another gateway prunes.
    ///
    /// # Errors
    /// The volume could not be read or written; the next pass continues.
    pub(crate) fn prune(
        &self,
        server: &ServerName,
        now_ms: u64,
    ) -> Result<PruneOutcome, RecordsError> {
        let area = self.read_area(server)?;
        let _lock = match area.lock(LOCK, Duration::ZERO) {
            Ok(lock) => lock,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Ok(PruneOutcome::default());
            }
            Err(error) => return Err(RecordsError::Read(error)),
        };
        let settings = self.settings();
        self.recorded_bytes().remove(server);
        let known = self.sizes().remove(server).unwrap_or_default();
        let mut pass = Pass {
            quota: QuotaCount::new(
                settings.runs_kept_bytes,
                settings.user_runs_kept_bytes,
                known,
            ),
            area: &area,
            now_ms,
            kept_ms: Millis::from(settings.runs_kept).get(),
            files: 0,
            pruned: PruneOutcome::default(),
        };
        pass.runs(settings.runs_kept_max)?;
        let is_whole = !pass.is_full();
        pass.events().map_err(RecordsError::Read)?;
        pass.pruned.is_more = pass.is_full();
        let Pass { quota, pruned, .. } = pass;
        let sizes = quota.into_sizes(is_whole);
        self.sizes().insert(server.clone(), sizes);
        if !pruned.is_more {
            area.set_modified(LOCK, now_ms)
                .map_err(RecordsError::Read)?;
        }
        Ok(pruned)
    }

    fn sizes(&self) -> MutexGuard<'_, HashMap<ServerName, RecordSizes>> {
        self.0.sizes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pass<'_> {
    fn is_full(&self) -> bool {
        self.files >= REMOVED_MAX
    }

    fn is_old(&self, id: &RunId) -> bool {
        self.now_ms.saturating_sub(id.made_at_ms()) >= self.kept_ms
    }

    fn remove(&mut self, path: &str) -> io::Result<()> {
        if self.area.remove(path)? {
            self.files = self.files.saturating_add(1);
        }
        Ok(())
    }

    fn runs(&mut self, kept_max: usize) -> Result<(), RecordsError> {
        let mut kept = 0_usize;
        for day in days(self.area, "").map_err(RecordsError::Read)? {
            if self.is_full() {
                return Ok(());
            }
            self.day(&day, kept_max, &mut kept)
                .map_err(RecordsError::Read)?;
        }
        Ok(())
    }

    fn day(&mut self, day: &str, kept_max: usize, kept: &mut usize) -> io::Result<()> {
        let mut runs: BTreeMap<RunId, Vec<String>> = BTreeMap::new();
        for name in self.area.names(day)? {
            let id = name.split('.').next().and_then(RunId::parse);
            if let Some(id) = id {
                runs.entry(id).or_default().push(name);
            }
        }
        let is_empty = runs.is_empty();
        for (id, names) in runs.into_iter().rev() {
            let has = |end: &str| names.iter().any(|name| name.ends_with(end));
            let is_listed = has(BEGUN);
            let is_over = if is_listed {
                let has_ended = has(".end");
                let is_used_up = self.quota.is_used_up(self.area, &id, &names, has_ended)?;
                let is_too_many = *kept >= kept_max || is_used_up;
                *kept = kept.saturating_add(1);
                (is_too_many && has_ended) || self.is_old(&id)
            } else {
                self.now_ms.saturating_sub(id.made_at_ms()) >= LIES_MS
            };
            if !is_over {
                continue;
            }
            if self.is_full() {
                return Ok(());
            }
            self.run(day, names)?;
            self.pruned.runs = self.pruned.runs.saturating_add(usize::from(is_listed));
        }
        self.area.remove_leftovers(day, self.now_ms, LIES_MS)?;
        self.remove_day(day, is_empty)
    }

    fn run(&mut self, day: &str, mut names: Vec<String>) -> io::Result<()> {
        names.sort_by_key(|name| !name.ends_with(BEGUN));
        for name in names {
            self.remove(&format!("{day}/{name}"))?;
        }
        Ok(())
    }

    /// The directory of today is needed again.
    fn remove_day(&self, path: &str, is_empty: bool) -> io::Result<()> {
        if is_empty && !path.ends_with(&day_directory(self.now_ms)) {
            self.area.remove_empty(path)?;
        }
        Ok(())
    }

    fn events(&mut self) -> io::Result<()> {
        let mut kept = 0_usize;
        for day in days(self.area, EVENTS)? {
            let path = format!("{EVENTS}/{day}");
            let mut names = self.area.names(&path)?;
            names.sort_unstable_by(|a, b| b.cmp(a));
            let is_empty = names.is_empty();
            for name in names {
                let id = name.split('.').next().and_then(RunId::parse);
                kept = kept.saturating_add(1);
                if kept <= EVENTS_KEPT_MAX && id.is_some_and(|id| !self.is_old(&id)) {
                    continue;
                }
                if self.is_full() {
                    return Ok(());
                }
                self.remove(&format!("{path}/{name}"))?;
                self.pruned.events = self.pruned.events.saturating_add(1);
            }
            self.area.remove_leftovers(&path, self.now_ms, LIES_MS)?;
            self.remove_day(&path, is_empty)?;
        }
        Ok(())
    }
}
