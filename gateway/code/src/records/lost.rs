//! Runs whose gateway died: any live gateway ends their records as `lost`.
//!
//! Invariant: a run is given up only if two looks at the store, some time apart, both find its gateway dead. What such a
//! gateway does after all changes nothing: a run ends once.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use mooring_session::names::{ServerName, WorkerId};
use serde_json::Map;

use super::call_log::LISTED_MAX;
use super::calls_read;
use super::id::{RunId, name_mark};
use super::recording::write_ended;
use super::stored::{RecordedEnd, RunStatus, Texts};
use super::versioned::VERSION;
use super::{RUNNING, Records, RecordsError};
use crate::volume::Area;
use mooring_store::unix_now_ms;

/// The recorded error of a lost run.
const LOST: &str = "the gateway ended during the run; whether its files were kept is unknown";

/// Runs whose gateway appears dead, as seen by this gateway, and since when.
#[derive(Debug, Default)]
pub(crate) struct OrphanedRuns(HashMap<Box<str>, Instant>);

impl OrphanedRuns {
    /// Forgets what was seen: the store was away.
    pub(crate) fn forget(&mut self) {
        self.0.clear();
    }

    /// Whether no run is orphaned.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The marker of a running run.
#[derive(Clone, Debug)]
pub(crate) struct RunMark {
    name: Box<str>,
    run: RunId,
    gateway: Box<str>,
}

impl Records {
    /// The marks of running runs. They are read before the store is asked for live gateways, so that a gateway that
    /// starts in between is not taken for dead.
    ///
    /// # Errors
    /// The volume could not be read.
    pub(crate) fn running(&self, server: &ServerName) -> Result<Vec<RunMark>, RecordsError> {
        let names = self
            .read_area(server)?
            .names(RUNNING)
            .map_err(RecordsError::Read)?;
        let mark = |name: String| {
            let (run, gateway) = name.split_once('.')?;
            Some(RunMark {
                run: RunId::parse(run)?,
                gateway: gateway.into(),
                name: name.as_str().into(),
            })
        };
        Ok(names.into_iter().filter_map(mark).collect())
    }

    /// Ends the records of those of `marks` whose gateway is not among `live`, and was not either at an earlier call
    /// `after` ago. Says how many this call ended. One that cannot be ended is logged, and left for later calls.
    ///
    /// # Errors
    /// There can be no records of this server.
    pub(crate) fn end_lost(
        &self,
        server: &ServerName,
        marks: &[RunMark],
        live: &[WorkerId],
        orphans: &mut OrphanedRuns,
        after: Duration,
    ) -> Result<u64, RecordsError> {
        let area = self.read_area(server)?;
        let mut living: HashSet<String> = live
            .iter()
            .map(|gateway| name_mark(gateway.as_str()))
            .collect();
        living.insert(name_mark(self.0.gateway.as_str()));
        let key_of = |mark: &RunMark| format!("{server}/{}", mark.name).into_boxed_str();
        let of_server = format!("{server}/");
        let seen: HashSet<Box<str>> = marks.iter().map(key_of).collect();
        // Runs that have ended meanwhile.
        let is_there = |key: &str| !key.starts_with(&of_server) || seen.contains(key);
        orphans.0.retain(|key, _| is_there(key));
        let mut ended = 0_u64;
        for mark in marks {
            let key = key_of(mark);
            if living.contains(&*mark.gateway) {
                orphans.0.remove(&key);
                continue;
            }
            let since = *orphans.0.entry(key.clone()).or_insert_with(Instant::now);
            if since.elapsed() < after {
                continue;
            }
            orphans.0.remove(&key);
            match end(&area, mark) {
                Ok(true) => ended = ended.saturating_add(1),
                Ok(false) => {}
                // It holds up none of the others, and is tried again after two more looks.
                Err(error) => {
                    tracing::warn!(%server, run = %mark.run, %error, "lost run not marked as ended");
                }
            }
        }
        Ok(ended)
    }
}

/// Ends one record, unless it has ended or never was whole; says whether it did.
fn end(area: &Area, mark: &RunMark) -> std::io::Result<bool> {
    let path = format!("{}/{}.run", mark.run.day(), mark.run);
    let was_ended = if area.exists(&path)? {
        let calls = calls_read::read(area, &mark.run)?;
        let ended = RecordedEnd {
            version: VERSION,
            status: RunStatus::Lost,
            finished_at_ms: unix_now_ms(),
            metrics: Map::new(),
            tool_calls_made: calls
                .calls
                .iter()
                .take(LISTED_MAX)
                .map(calls_read::RecordedCall::made)
                .collect(),
            tool_calls_total: u64::try_from(calls.calls.len()).unwrap_or(u64::MAX),
            security_events: Vec::new(),
            security_events_total: 0,
            are_calls_complete: calls.is_complete,
            are_bodies_omitted: false,
        };
        let texts = Texts {
            output: String::new(),
            error: Some(LOST.to_owned()),
        };
        write_ended(area, &mark.run, &ended, Some(&texts))?
    } else {
        false
    };
    area.remove(&format!("{RUNNING}/{}", mark.name))?;
    Ok(was_ended)
}
