//! Reading records: one, or the newest ones. What is listed is read; the rest is only seen by its name.

use std::io;

use mooring_session::names::ServerName;

use super::calls_read::{self, RecordedCalls};
use super::id::{RunId, days};
use super::stored::{RecordedEnd, RunStart, RunStatus, Texts};
use super::{Records, RecordsError, versioned};
use crate::volume::Area;

/// The suffix of the file that records the start of a run.
pub(super) const BEGUN: &str = ".run";
/// Most bytes of it.
const BEGUN_BYTES_MAX: usize = 64 * 1024;
/// Most bytes of what says how it ended.
pub(super) const ENDED_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Most bytes of code.
const CODE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Most bytes of what it printed: settings go to 10 million characters of at most 12 bytes in JSON, twice.
const TEXTS_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Most records read for one list. Who asks for those of one user, or of one status, may get fewer than there are.
const LOOKED_AT_MAX: usize = 20_000;

/// Which runs are asked for.
#[derive(Clone, Debug, Default)]
pub struct RunFilter {
    /// Only those of this principal.
    pub user: Option<String>,
    /// Only those that are so.
    pub status: Option<RunStatus>,
    /// Only those older than this one.
    pub before: Option<RunId>,
    /// At most so many.
    pub limit: usize,
}

/// The record of a run, without its code, its calls and its output.
#[derive(Clone, Debug, PartialEq)]
pub struct RunRecord {
    /// The facts at its start.
    pub begun: RunStart,
    /// How it ended; `None` while it is running.
    pub(crate) ended: Option<RecordedEnd>,
}

/// All that is recorded of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct WholeRun {
    /// The record as in lists.
    pub(crate) record: RunRecord,
    /// Its code; none where it was not recorded.
    pub(crate) code: Option<String>,
    /// Its output.
    pub(crate) texts: Texts,
    /// The tools it called.
    pub(crate) calls: RecordedCalls,
}

impl RunRecord {
    pub(super) fn new(begun: RunStart, ended: Option<RecordedEnd>) -> Self {
        Self { begun, ended }
    }

    /// Where it is.
    pub fn status(&self) -> RunStatus {
        self.ended
            .as_ref()
            .map_or(RunStatus::Running, |ended| ended.status)
    }
}

impl Records {
    /// The runs asked for, newest first.
    ///
    /// # Errors
    /// The volume could not be read. Records of a later version are left out.
    pub fn runs(
        &self,
        server: &ServerName,
        filter: &RunFilter,
    ) -> Result<Vec<RunRecord>, RecordsError> {
        let area = self.read_area(server)?;
        let before_day = filter.before.as_ref().map(RunId::day);
        let (mut found, mut looked_at) = (Vec::new(), 0_usize);
        for day in days(&area, "").map_err(RecordsError::Read)? {
            if before_day.as_ref().is_some_and(|before| day > *before) {
                continue;
            }
            for id in runs_of(&area, &day)? {
                if filter.before.as_ref().is_some_and(|before| id >= *before) {
                    continue;
                }
                if found.len() >= filter.limit || looked_at >= LOOKED_AT_MAX {
                    return Ok(found);
                }
                looked_at = looked_at.saturating_add(1);
                found.extend(read_matching(&area, &id, filter)?);
            }
        }
        Ok(found)
    }

    /// One run, without its code, its calls and what it printed.
    ///
    /// # Errors
    /// There is none of this id, or it cannot be read.
    pub fn run(&self, server: &ServerName, id: &RunId) -> Result<RunRecord, RecordsError> {
        record(&self.read_area(server)?, id)
    }

    /// All of one run.
    ///
    /// # Errors
    /// As [`Records::run`].
    pub fn whole_run(&self, server: &ServerName, id: &RunId) -> Result<WholeRun, RecordsError> {
        let area = self.read_area(server)?;
        let record = record(&area, id)?;
        let path = |what: &str| format!("{}/{id}.{what}", id.day());
        let code = area
            .read(&path("code"), CODE_BYTES_MAX)
            .map_err(RecordsError::Read)?;
        let texts = area
            .read(&path("out"), TEXTS_BYTES_MAX)
            .map_err(RecordsError::Read)?;
        Ok(WholeRun {
            record,
            code: code.and_then(|code| String::from_utf8(code).ok()),
            texts: texts
                .and_then(|texts| serde_json::from_slice(&texts).ok())
                .unwrap_or_default(),
            calls: calls_read::read(&area, id).map_err(RecordsError::Read)?,
        })
    }
}

/// A record where the filter wants it; none also where it was pruned meanwhile or cannot be read.
fn read_matching(
    area: &Area,
    id: &RunId,
    filter: &RunFilter,
) -> Result<Option<RunRecord>, RecordsError> {
    let begun = match read_start(area, id) {
        Ok(begun) => begun,
        Err(RecordsError::NoRun | RecordsError::Unreadable) => return Ok(None),
        Err(error) => return Err(error),
    };
    if filter
        .user
        .as_ref()
        .is_some_and(|user| begun.user_email != *user)
    {
        return Ok(None);
    }
    match read_end(area, id) {
        Ok(ended) => {
            let record = RunRecord::new(begun, ended);
            let is_wanted = filter.status.is_none_or(|status| record.status() == status);
            Ok(is_wanted.then_some(record))
        }
        Err(RecordsError::Unreadable) => Ok(None),
        Err(error) => Err(error),
    }
}

fn record(area: &Area, id: &RunId) -> Result<RunRecord, RecordsError> {
    Ok(RunRecord::new(read_start(area, id)?, read_end(area, id)?))
}

pub(super) fn read_start(area: &Area, id: &RunId) -> Result<RunStart, RecordsError> {
    let path = format!("{}/{id}{BEGUN}", id.day());
    let bytes = read(area, &path, BEGUN_BYTES_MAX)?.ok_or(RecordsError::NoRun)?;
    versioned::read(&bytes).ok_or(RecordsError::Unreadable)
}

fn read_end(area: &Area, id: &RunId) -> Result<Option<RecordedEnd>, RecordsError> {
    let path = format!("{}/{id}.end", id.day());
    read(area, &path, ENDED_BYTES_MAX)?
        .map(|bytes| versioned::read(&bytes).ok_or(RecordsError::Unreadable))
        .transpose()
}

/// One file of a record. A file that is too large is not a failure of the volume: it affects its own run only.
fn read(area: &Area, path: &str, bytes_max: usize) -> Result<Option<Vec<u8>>, RecordsError> {
    area.read(path, bytes_max)
        .map_err(|error| match error.kind() {
            io::ErrorKind::FileTooLarge => RecordsError::Unreadable,
            _ => RecordsError::Read(error),
        })
}

/// The runs that began on a day, newest first.
fn runs_of(area: &Area, day: &str) -> Result<Vec<RunId>, RecordsError> {
    let names = area.names(day).map_err(RecordsError::Read)?;
    let id = |name: &String| name.strip_suffix(BEGUN).and_then(RunId::parse);
    let mut ids: Vec<RunId> = names.iter().filter_map(id).collect();
    ids.sort_unstable_by(|a, b| b.cmp(a));
    Ok(ids)
}
