//! The report of a run: its output, error and metrics, for its record and its [`answer`](super::answer).
//!
//! `error` is what the run wrote to its standard error, and why it did not complete; none where there is neither.

use mooring_sandbox::tree::{CommitError, CommitReport, RefusedEntry};
use mooring_sandbox::{Limits, Output, RunEnd, RunLimit, StopReason};
use serde_json::{Map, Value, json};

use super::brief_errors::shortened;
use super::choose::RunRefusal;
use super::execution::Execution;
use crate::bridge::{BridgeSummary, Violation};
use crate::records::{CallsMade, RunCompletion, rounded_ms};
use crate::server::directories::DirectoryWords;
use crate::server::long_output::SavedOutput;
use crate::server::run::{CompletedRun, RunResult};
use crate::volume::is_full;
use mooring_metrics::RunOutcome;
use mooring_secrets::digest;
use mooring_settings::CodeRuntime;

/// Most files that a report names as not kept.
const NOT_KEPT_MAX: usize = 10;

/// What is reported of a run, before it is formatted.
pub(super) struct Report {
    /// As its record has it.
    pub(super) completion: RunCompletion,
    /// Whether the agent may take it for what it asked.
    pub(super) is_done: bool,
    /// The limits that it met, by the names of the policy.
    pub(super) limits_hit: Vec<&'static str>,
    /// What the model would take for kept: state that other servers have lost, and files that the commit refused.
    pub(super) losses: Vec<String>,
    /// Whether a stream was longer than what is kept of it.
    pub(super) is_truncated: bool,
    /// Where its output is, where that is too long for an answer.
    pub(super) saved_output: Option<SavedOutput>,
    /// The same of its error.
    pub(super) saved_error: Option<SavedOutput>,
}

/// How a run ended, as answers and metrics name it.
pub(super) const fn outcome(ended: &RunEnd) -> RunOutcome {
    match ended {
        RunEnd::Exited(0) => RunOutcome::Completed,
        RunEnd::Exited(_) | RunEnd::Signalled(_) => RunOutcome::Failed,
        RunEnd::Stopped(StopReason::WallTime) => RunOutcome::TimedOut,
        RunEnd::Stopped(
            StopReason::CpuTime | StopReason::Memory | StopReason::Disk | StopReason::Asked,
        ) => RunOutcome::Killed,
    }
}

impl Report {
    /// The code was looked at and not run. None where it was not even looked at.
    pub(super) fn of_refusal(execution: &Execution, refusal: &RunRefusal) -> Option<Self> {
        let runtime = refusal.blocked_runtime()?;
        let (pattern, line, exit_code) = match refusal {
            RunRefusal::Blocked(found, _) => (Some(&*found.pattern), Some(found.line), None),
            RunRefusal::Line(error) => (None, None, Some(error.exit_code())),
            RunRefusal::NotAllowed { .. }
            | RunRefusal::Missing { .. }
            | RunRefusal::Unavailable(_) => (None, None, None),
        };
        // As a shell has it, a line that cannot be read is a command that failed.
        let outcome = match refusal.is_policy_block() {
            true => RunOutcome::Blocked,
            false => RunOutcome::Failed,
        };
        let mut metrics = identity(execution, runtime, outcome);
        metrics.extend(members(json!({
            "pattern": pattern,
            "line": line,
            "exit_code": exit_code,
        })));
        Some(Self {
            completion: RunCompletion {
                outcome,
                output: String::new(),
                error: Some(refusal.to_string()),
                metrics,
            },
            is_done: false,
            limits_hit: Vec::new(),
            losses: Vec::new(),
            is_truncated: false,
            saved_output: None,
            saved_error: None,
        })
    }

    /// It ran. `lost` are the servers that have lost the session's state.
    pub(super) fn of_run(
        execution: &Execution,
        runtime: CodeRuntime,
        over: &mut CompletedRun,
        limits: &Limits,
        lost: &[Box<str>],
    ) -> Self {
        let limits_hit = limits_hit(&over.ran, &over.served);
        let ran = &mut over.ran;
        let outcome = outcome(&ran.ended);
        let (exit_code, signal) = match ran.ended {
            RunEnd::Exited(code) => (Some(code), None),
            RunEnd::Signalled(signal) => (None, Some(signal)),
            RunEnd::Stopped(_) => (None, None),
        };
        let mut metrics = identity(execution, runtime, outcome);
        metrics.extend(members(json!({
            "exit_code": exit_code,
            "signal": signal,
            "wall_time_ms": rounded_ms(ran.usage.wall_time),
            "cpu_time_ms": rounded_ms(ran.usage.cpu_time),
            "start_time_ms": rounded_ms(ran.usage.start_time),
            "memory_peak_bytes": ran.usage.memory_peak_bytes,
            "bytes_written": ran.stdout.written_bytes,
            "bytes_error": ran.stderr.written_bytes,
            "limits_hit": limits_hit,
            "isolation": {
                "tier": ran.tier,
                "layers": ran.layers,
            },
            "files": ran.committed.as_ref().map_or(Value::Null, files),
        })));
        if !lost.is_empty() {
            metrics.insert("state_lost".to_owned(), json!(lost));
        }
        Self {
            completion: RunCompletion {
                outcome,
                output: text(&ran.stdout),
                error: error(ran, limits),
                metrics,
            },
            is_done: outcome == RunOutcome::Completed
                && ran.committed.as_ref().is_none_or(Result::is_ok),
            limits_hit,
            losses: losses(ran, lost),
            is_truncated: ran.stdout.is_truncated() || ran.stderr.is_truncated(),
            saved_output: ran.saved_stdout.take(),
            saved_error: ran.saved_stderr.take(),
        }
    }

    /// Adds what the calls came to.
    pub(super) fn note_calls(&mut self, calls: &CallsMade) {
        let latency = |percent| calls.latency_ms(percent);
        let of_calls = json!({
            "tool_call_count": calls.total,
            "tool_latency_p50_ms": latency(50),
            "tool_latency_p95_ms": latency(95),
            "tool_latency_p99_ms": latency(99),
            "error_rate": calls.error_rate(),
        });
        self.completion.metrics.extend(members(of_calls));
    }
}

/// Which run it was, whatever came of it.
fn identity(
    execution: &Execution,
    runtime: CodeRuntime,
    outcome: RunOutcome,
) -> Map<String, Value> {
    members(json!({
        "run_id": execution.run_id.as_str(),
        "code_hash": digest::hex(execution.code.as_bytes()),
        "runtime": runtime.as_str(),
        "outcome": <&'static str>::from(outcome),
    }))
}

fn losses(ran: &RunResult, lost: &[Box<str>]) -> Vec<String> {
    let lost = lost.iter().map(|server| {
        format!(
            "state lost: the session at the server {server} was lost before a call of this run and replaced; what the server remembered is gone"
        )
    });
    let mut losses: Vec<String> = lost.collect();
    if let Some(Ok(committed)) = &ran.committed {
        let named = committed.refused.iter().take(NOT_KEPT_MAX);
        losses
            .extend(named.map(|refused| format!("not kept: {}: {}", refused.path, refused.reason)));
        let more = committed.refused_total.saturating_sub(NOT_KEPT_MAX as u64);
        if more > 0 {
            losses.push(format!("not kept: {more} more"));
        }
    }
    losses
}

fn members(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}

fn text(output: &Output) -> String {
    let mut text = String::from_utf8_lossy(&output.bytes).into_owned();
    if output.is_truncated() {
        text.push_str(&format!(
            "\n[truncated: the first {} of {} bytes; what is longer belongs in a file]",
            output.bytes.len(),
            output.written_bytes
        ));
    }
    text
}

/// The standard error of the run, and why it did not complete.
fn error(ran: &RunResult, limits: &Limits) -> Option<String> {
    let mut lines = Vec::new();
    let own = text(&ran.stderr);
    let wanted_network = ran.refused_calls.iter().any(|call| call.name == "socket");
    let own = match ran.ended {
        RunEnd::Exited(code) if code != 0 => shortened(&own, wanted_network).unwrap_or(own),
        _ => own,
    };
    if !own.is_empty() {
        lines.push(own);
    }
    match &ran.ended {
        RunEnd::Exited(0) => {}
        RunEnd::Exited(code) if lines.is_empty() => {
            lines.push(format!("it ended with exit code {code}"))
        }
        RunEnd::Exited(_) => {}
        RunEnd::Signalled(signal) => lines.push(format!("it was ended by signal {signal}")),
        RunEnd::Stopped(why) => lines.push(stopped(*why, limits)),
    }
    if let Some(Err(error)) = &ran.committed {
        lines.push(match error {
            CommitError::OverLimit {
                limit,
                needed,
                allowed,
            } => format!(
                "none of its files were kept, and the session is as before: /scratch and /results would have {needed} {}, \
                 and may have {allowed}; delete something, and run it again",
                if *limit == "inodes" { "files and directories" } else { "bytes" }
            ),
            CommitError::Overtaken { .. } => {
                "none of its files were kept: another call of the session has overtaken it"
                    .to_owned()
            }
            CommitError::System { source, .. } if is_full(source) => {
                "none of its files were kept: the gateway's volume is full".to_owned()
            }
            CommitError::Unfinished { .. } => {
                "its files are kept; some appear with the next call".to_owned()
            }
            CommitError::UnknownJournal | CommitError::System { .. } => {
                "none of its files were kept: the session's files could not be written".to_owned()
            }
        });
    }
    (!lines.is_empty()).then(|| lines.join("\n"))
}

fn stopped(why: StopReason, limits: &Limits) -> String {
    match why {
        StopReason::WallTime => format!(
            "timed out: it took longer than {} ms, and was stopped: {}",
            limits.wall_time.as_millis(),
            DirectoryWords::of(&limits.access).advice_to_split()
        ),
        StopReason::CpuTime => format!(
            "killed: it used more than {} ms of processor time",
            limits.cpu_time.as_millis()
        ),
        StopReason::Memory => format!(
            "killed: it used more than {} bytes of memory",
            limits.memory_bytes
        ),
        StopReason::Disk => format!(
            "killed: its files were more than {} bytes or {} in number",
            limits.disk_bytes, limits.inodes
        ),
        StopReason::Asked => "killed: the gateway was asked to stop it".to_owned(),
    }
}

/// Which limits the run met, by the names of the policy: those that ended it, and those at which the kernel refused what
/// would have gone beyond.
fn limits_hit(ran: &RunResult, served: &BridgeSummary) -> Vec<&'static str> {
    let mut hit = Vec::new();
    match ran.ended {
        RunEnd::Stopped(StopReason::WallTime) => hit.push("max_execution_time_ms"),
        RunEnd::Stopped(StopReason::CpuTime) => hit.push("max_cpu_time_ms"),
        RunEnd::Stopped(StopReason::Memory) => hit.push("max_memory_mb"),
        RunEnd::Stopped(StopReason::Disk) => hit.push("max_total_disk_mb"),
        RunEnd::Exited(_) | RunEnd::Signalled(_) | RunEnd::Stopped(StopReason::Asked) => {}
    }
    if ran.stdout.is_truncated() || ran.stderr.is_truncated() {
        hit.push("output_bytes_max");
    }
    hit.extend(ran.limits_reached.iter().map(|limit| match limit {
        RunLimit::Processes => "max_processes",
        RunLimit::DiskBytes => "max_total_disk_mb",
        RunLimit::Files => "max_files",
    }));
    match &ran.committed {
        Some(Err(CommitError::OverLimit { limit, .. })) => hit.push(match *limit {
            "disk_bytes" => "max_total_disk_mb",
            "inodes" => "max_files",
            _ => "max_cpu_time_ms",
        }),
        Some(Ok(committed)) if committed.is_file_limit_reached => hit.push("max_file_size_mb"),
        _ => {}
    }
    let mut violations = served.violations.iter();
    if violations.any(|violation| matches!(violation, Violation::TooManyCalls { .. })) {
        hit.push("calls_per_run");
    }
    // The degraded tier stops a run at the limit that its commit meets too.
    let mut known = std::collections::HashSet::new();
    hit.retain(|limit| known.insert(*limit));
    hit
}

fn files(committed: &Result<CommitReport, CommitError>) -> Value {
    let refused = |refused: &RefusedEntry| json!({ "path": refused.path, "reason": refused.reason.to_string() });
    match committed {
        Ok(kept) => json!({
            "written": kept.files,
            "deleted": kept.deleted,
            "directories": kept.directories,
            "bytes": kept.bytes,
            "refused": kept.refused.iter().map(refused).collect::<Vec<_>>(),
            "refused_total": kept.refused_total,
        }),
        Err(_) => Value::Null,
    }
}
