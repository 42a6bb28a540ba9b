//! The record of one run, from before it begins until it has ended.
//!
//! Invariant: a recording ends once: by [`Recording::finish`], or, if it is dropped without that, as `failed`. A live
//! gateway never leaves one `running`.

use std::sync::{Arc, Mutex, PoisonError};

use mooring_session::names::{Principal, ServerName};
use serde_json::{Map, Value};

use super::ReplayMode;
use super::call_log::{CallLog, CallsMade};
use super::events::{SecurityEvent, StoredEvent};
use super::id::{RunId, name_mark};
use super::list::RunRecord;
use super::recording_callee::RecordingCallee;
use super::stored::{RecordedEnd, RunStart, RunStatus, Texts};
use super::versioned::VERSION;
use super::{RUNNING, Records};
use crate::calls::Callee;
use crate::volume::Area;
use mooring_metrics::{self as metrics, Record, RunOutcome};
use mooring_secrets::digest;
use mooring_settings::Language;
use mooring_store::unix_now_ms;

/// Most security events that one run's record lists, and that one run stores.
const EVENTS_MAX: usize = 100;
/// The recorded error of a run that was dropped before its end was recorded.
const DROPPED: &str = "the gateway dropped the run before its end was recorded";

/// A run that begins.
#[derive(Clone, Debug)]
pub(crate) struct NewRun {
    /// Its name: what its answer has as `run_id`.
    pub(crate) id: RunId,
    /// The code session; none if the run was blocked before there was one.
    pub(crate) session_id: Option<Box<str>>,
    /// The principal of the run.
    pub(crate) principal: Principal,
    /// The principal's teams.
    pub(crate) teams: Vec<String>,
    /// The team that the server belongs to, where there is one.
    pub(crate) team: Option<String>,
    /// The language of the session.
    pub(crate) language: Language,
    /// `python`, `deno` or `shell`.
    pub(crate) runtime: &'static str,
    /// The code.
    pub(crate) code: Arc<str>,
    /// The longest time that the call asked for, in milliseconds.
    pub(crate) timeout_ms: Option<u64>,
    /// The run that it replays; none if it is no replay.
    pub(crate) replay_of: Option<ReplayOf>,
}

/// The run that another one repeats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReplayOf {
    /// Which.
    pub(crate) run_id: RunId,
    /// How.
    pub(crate) mode: ReplayMode,
}

/// The outcome and texts of an ended run, to be recorded.
#[derive(Clone, Debug)]
pub(crate) struct RunCompletion {
    /// As its answer and the metrics say it.
    pub(crate) outcome: RunOutcome,
    /// Its output, cut to the characters that the settings allow.
    pub(crate) output: String,
    /// The `error` of its answer, cut in the same way.
    pub(crate) error: Option<String>,
    /// The `metrics` of its answer, unchanged.
    pub(crate) metrics: Map<String, Value>,
}

/// The state shared by a recording and its recorders of calls.
#[derive(Debug)]
pub(super) struct Log {
    records: Records,
    server: ServerName,
    principal: Principal,
    area: Area,
    run: RunId,
    pub(super) calls: CallLog,
    events: Mutex<Events>,
    /// Whether its code was left out for want of free space.
    is_code_omitted: bool,
}

#[derive(Debug, Default)]
struct Events {
    listed: Vec<StoredEvent>,
    total: u64,
}

/// The record of a run under way.
#[derive(Debug)]
pub(crate) struct Recording {
    begun: RunStart,
    /// None where this server cannot have run records.
    log: Option<Arc<Log>>,
    output_chars_max: usize,
    is_finished: bool,
}

impl Recording {
    pub(super) fn begin(records: Records, server: &ServerName, run: NewRun) -> Self {
        let begun = run_start(&records, server, &run);
        let output_chars_max = records.settings().persisted_output_chars_max;
        let log = match records.area(server) {
            Ok(area) => {
                let free_space = Arc::clone(&records.0.free_space);
                let is_code_omitted = !free_space.is_above_floor();
                write_begun(&area, &run, &begun, is_code_omitted);
                Some(Arc::new(Log {
                    server: server.clone(),
                    principal: run.principal,
                    calls: CallLog::new(area.clone(), run.id.clone(), free_space),
                    is_code_omitted,
                    run: run.id,
                    events: Mutex::default(),
                    area,
                    records,
                }))
            }
            Err(error) => {
                lost_record(&error, "a run is not recorded");
                None
            }
        };
        Self {
            begun,
            log,
            output_chars_max,
            is_finished: false,
        }
    }

    /// The run's id.
    #[cfg(test)]
    pub(crate) fn run_id(&self) -> &str {
        &self.begun.id
    }

    /// Notes an event of the run: at once in the events of its server, and later in its record. Blocks.
    pub(crate) fn event(&self, event: SecurityEvent) {
        if let Some(log) = &self.log {
            log.event(&event);
        }
    }

    /// The same tools, whose calls are recorded as they happen. If there can be no record, they are only forwarded.
    pub(crate) fn callee<C: Callee>(&self, inner: C) -> RecordingCallee<C> {
        RecordingCallee::new(inner, self.log.clone())
    }

    /// A summary of the calls so far, for the answer of the run.
    pub(crate) fn calls_made(&self) -> CallsMade {
        self.log
            .as_ref()
            .map_or_else(CallsMade::default, |log| log.calls.made())
    }

    /// Ends it, and returns what was recorded. Blocks.
    pub(crate) fn finish(mut self, finished: RunCompletion) -> RunRecord {
        self.is_finished = true;
        let texts = Texts::cut(
            &finished.output,
            finished.error.as_deref(),
            self.output_chars_max,
        );
        let ended = self.end(finished.outcome.into(), finished.metrics, &texts);
        RunRecord::new(self.begun.clone(), Some(ended))
    }

    fn end(&self, status: RunStatus, metrics: Map<String, Value>, texts: &Texts) -> RecordedEnd {
        let calls = self.calls_made();
        let mut ended = RecordedEnd {
            version: VERSION,
            status,
            finished_at_ms: unix_now_ms(),
            metrics,
            tool_calls_made: calls.calls,
            tool_calls_total: calls.total,
            security_events: Vec::new(),
            security_events_total: 0,
            are_calls_complete: calls.is_complete,
            are_bodies_omitted: false,
        };
        if let Some(log) = &self.log {
            log.calls.close();
            let texts = Some(texts).filter(|_| log.records.0.free_space.is_above_floor());
            ended.are_bodies_omitted = texts.is_none() || log.is_code_omitted;
            log.note_recorded(texts, self.begun.code_size_bytes);
            let mut events = log.events.lock().unwrap_or_else(PoisonError::into_inner);
            ended.security_events = std::mem::take(&mut events.listed);
            ended.security_events_total = events.total;
            drop(events);
            if let Err(error) = write_ended(&log.area, &log.run, &ended, texts) {
                lost_record(&error, "the end of a run is not recorded");
            }
            remove_mark(&log.area, &log.run, &self.begun.worker);
        }
        ended
    }
}

impl Drop for Recording {
    /// The run was not finished: its future was dropped, or its thread panicked. That is rare, and costs the thread no
    /// more than some small files.
    fn drop(&mut self) {
        if !self.is_finished {
            let texts = Texts {
                output: String::new(),
                error: Some(DROPPED.to_owned()),
            };
            self.end(RunStatus::Failed, Map::new(), &texts);
        }
    }
}

impl Log {
    /// Counts what the run's record has taken.
    fn note_recorded(&self, texts: Option<&Texts>, code_bytes: u64) {
        let length = |text: &str| u64::try_from(text.len()).unwrap_or(u64::MAX);
        let texts = texts.map_or(0, |texts| {
            let error = texts.error.as_deref().map_or(0, length);
            length(&texts.output).saturating_add(error)
        });
        let bytes = texts
            .saturating_add(self.calls.bytes())
            .saturating_add(code_bytes);
        let mut recorded = self.records.recorded_bytes();
        let recorded = recorded.entry(self.server.clone()).or_default();
        *recorded = recorded.saturating_add(bytes);
    }

    /// Notes an event of the run. Blocks.
    pub(super) fn event(&self, event: &SecurityEvent) {
        let run = Some(self.run.as_str());
        let stored = StoredEvent::new(self.server.as_str(), &self.principal, run, event);
        let is_listed = {
            let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
            events.total = events.total.saturating_add(1);
            let is_listed = events.listed.len() < EVENTS_MAX;
            if is_listed {
                events.listed.push(stored.clone());
            }
            is_listed
        };
        if is_listed {
            self.records.store_event(&self.server, &self.area, &stored);
        }
    }
}

fn run_start(records: &Records, server: &ServerName, run: &NewRun) -> RunStart {
    let replay = run.replay_of.as_ref();
    RunStart {
        version: VERSION,
        id: run.id.as_str().to_owned(),
        server_id: server.as_str().to_owned(),
        session_id: run.session_id.as_deref().map(str::to_owned),
        user_email: run.principal.as_str().to_owned(),
        token_teams: run.teams.clone(),
        team_id: run.team.clone(),
        language: run.language.as_str().to_owned(),
        runtime: run.runtime.to_owned(),
        code_hash: digest::hex(run.code.as_bytes()),
        code_size_bytes: u64::try_from(run.code.len()).unwrap_or(u64::MAX),
        started_at_ms: unix_now_ms(),
        worker: records.0.gateway.as_str().to_owned(),
        timeout_ms: run.timeout_ms,
        replayed_from_run_id: replay.map(|of| of.run_id.as_str().to_owned()),
        replay_mode: replay.map(|of| of.mode.to_string()),
    }
}

/// The mark comes first, so that the scan for lost runs finds every record of a running run.
fn write_begun(area: &Area, run: &NewRun, begun: &RunStart, is_code_omitted: bool) {
    let day = run.id.day();
    let written = area
        .replace(RUNNING, &mark(&run.id, &begun.worker), b"")
        .and_then(|()| match is_code_omitted {
            true => Ok(()),
            false => area.replace(&day, &format!("{}.code", run.id), run.code.as_bytes()),
        })
        .and_then(|()| {
            let bytes = serde_json::to_vec(begun)?;
            area.replace(&day, &format!("{}.run", run.id), &bytes)
        });
    if let Err(error) = written {
        lost_record(&error, "a run is not recorded");
    }
}

/// Writes the end of a run unless another gateway has; returns whether it did.
pub(super) fn write_ended(
    area: &Area,
    run: &RunId,
    ended: &RecordedEnd,
    texts: Option<&Texts>,
) -> std::io::Result<bool> {
    let day = run.day();
    let end = format!("{run}.end");
    if area.exists(&format!("{day}/{end}"))? {
        return Ok(false);
    }
    if let Some(texts) = texts {
        area.replace(&day, &format!("{run}.out"), &serde_json::to_vec(texts)?)?;
    }
    area.publish(&day, &end, &serde_json::to_vec(ended)?)
}

/// The name of a running run's marker.
pub(super) fn mark(run: &RunId, gateway: &str) -> String {
    format!("{run}.{}", name_mark(gateway))
}

fn remove_mark(area: &Area, run: &RunId, gateway: &str) {
    // A marker that remains only costs the next scan one check.
    if let Err(error) = area.remove(&format!("{RUNNING}/{}", mark(run, gateway))) {
        tracing::debug!(%error, "marker of an ended run not removed");
    }
}

fn lost_record(error: &std::io::Error, what: &'static str) {
    tracing::warn!(%error, "{what}");
    metrics::code_record_failed(Record::Run);
}
