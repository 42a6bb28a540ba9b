//! What a run is answered with.
//!
//! Fields are those of the contract: output, error, metrics, tool_calls_made and run_id. `error` is what the run wrote
//! to its standard error, and why it did not complete; null where there is neither.

use std::time::Duration;

use mooring_sandbox::tree::{CommitError, Committed, Refused};
use mooring_sandbox::{Ended, Layer, Limits, Output, Stopped};
use mooring_session::time::Millis;
use serde_json::{Map, Value, json};

use super::super::super::answer::ToolAnswer;
use super::super::super::failure::is_full;
use super::super::super::runs::Ran;
use super::choose::{Refusal, RuntimeName};
use crate::code::records::{CallMade, CallsMade, Finished, RunId};
use crate::digest;
use crate::metrics::RunOutcome;

/// What is told of a run whatever came of it.
pub(super) struct Told<'a> {
    pub(super) run_id: &'a RunId,
    pub(super) code: &'a str,
}

/// What a run came to, before it is told.
pub(super) struct Report {
    pub(super) outcome: RunOutcome,
    /// Whether the agent may take it for what it asked.
    is_done: bool,
    pub(super) output: String,
    pub(super) error: Option<String>,
    metrics: Map<String, Value>,
}

/// How a run ended, as answers and metrics name it.
pub(super) const fn outcome(ended: &Ended) -> RunOutcome {
    match ended {
        Ended::Exited(0) => RunOutcome::Completed,
        Ended::Exited(_) | Ended::Signalled(_) => RunOutcome::Failed,
        Ended::Stopped(Stopped::WallTime) => RunOutcome::TimedOut,
        Ended::Stopped(Stopped::CpuTime | Stopped::Memory | Stopped::Disk | Stopped::Asked) => {
            RunOutcome::Killed
        }
    }
}

/// Nothing ran.
pub(super) fn refused(message: impl std::fmt::Display) -> ToolAnswer {
    ToolAnswer::failed(json!({
        "output": "",
        "error": message.to_string(),
        "metrics": {},
        "tool_calls_made": [],
    }))
}

/// Nothing ran, because too much ran lately.
pub(super) fn rate_limited(limit: u64, retry_after: Millis) -> ToolAnswer {
    let retry_after_ms = retry_after.get();
    ToolAnswer::failed(json!({
        "output": "",
        "error": format!(
            "rate limited: {limit} runs a minute are allowed; try again in {retry_after_ms} ms"
        ),
        "metrics": {},
        "tool_calls_made": [],
        "retry_after_ms": retry_after_ms,
    }))
}

impl Told<'_> {
    fn code_hash(&self) -> String {
        digest::hex(self.code.as_bytes())
    }

    /// The code was looked at and not run. None where it was not even looked at.
    pub(super) fn not_chosen(&self, refusal: &Refusal) -> Option<Report> {
        let runtime = refusal.blocked_runtime()?;
        let (pattern, line, exit_code) = match refusal {
            Refusal::Blocked(found, _) => (Some(&*found.pattern), Some(found.line), None),
            Refusal::Line(error) => (None, None, Some(error.exit_code())),
            Refusal::Missing { .. } | Refusal::Unavailable(_) => (None, None, None),
        };
        let metrics = json!({
            "run_id": self.run_id.as_str(),
            "code_hash": self.code_hash(),
            "runtime": runtime.as_str(),
            "outcome": RunOutcome::Blocked.as_str(),
            "pattern": pattern,
            "line": line,
            "exit_code": exit_code,
        });
        Some(Report {
            outcome: RunOutcome::Blocked,
            is_done: false,
            output: String::new(),
            error: Some(refusal.to_string()),
            metrics: members(metrics),
        })
    }

    /// It ran.
    pub(super) fn ran(&self, runtime: RuntimeName, ran: &Ran, limits: &Limits) -> Report {
        let outcome = outcome(&ran.ended);
        let (exit_code, signal) = match ran.ended {
            Ended::Exited(code) => (Some(code), None),
            Ended::Signalled(signal) => (None, Some(signal)),
            Ended::Stopped(_) => (None, None),
        };
        let metrics = json!({
            "run_id": self.run_id.as_str(),
            "code_hash": self.code_hash(),
            "runtime": runtime.as_str(),
            "outcome": outcome.as_str(),
            "exit_code": exit_code,
            "signal": signal,
            "wall_time_ms": rounded_ms(ran.usage.wall_time),
            "cpu_time_ms": rounded_ms(ran.usage.cpu_time),
            "start_time_ms": rounded_ms(ran.usage.start_time),
            "memory_peak_bytes": ran.usage.memory_peak_bytes,
            "bytes_written": ran.stdout.written_bytes,
            "bytes_error": ran.stderr.written_bytes,
            "limits_hit": limits_hit(ran),
            "isolation": {
                "tier": ran.tier.as_str(),
                "layers": ran.layers.iter().copied().map(Layer::as_str).collect::<Vec<_>>(),
            },
            "files": ran.committed.as_ref().map_or(Value::Null, files),
        });
        Report {
            outcome,
            is_done: outcome == RunOutcome::Completed
                && ran.committed.as_ref().is_none_or(Result::is_ok),
            output: text(&ran.stdout),
            error: error(ran, limits),
            metrics: members(metrics),
        }
    }
}

impl Report {
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
        self.metrics.extend(members(of_calls));
    }

    /// The limits that it met, by the names of the policy.
    pub(super) fn limits_hit(&self) -> Vec<String> {
        let hit = self.metrics.get("limits_hit").and_then(Value::as_array);
        let names = hit.into_iter().flatten().filter_map(Value::as_str);
        names.map(str::to_owned).collect()
    }

    /// As its record has it.
    pub(super) fn finished(&self) -> Finished {
        Finished {
            outcome: self.outcome,
            output: self.output.clone(),
            error: self.error.clone(),
            metrics: self.metrics.clone(),
        }
    }

    /// As its caller is told.
    pub(super) fn into_answer(
        self,
        run_id: &RunId,
        calls: &CallsMade,
        replayed_from: Option<&RunId>,
    ) -> ToolAnswer {
        let mut content = json!({
            "output": self.output,
            "error": self.error,
            "metrics": self.metrics,
            "tool_calls_made": calls.calls.iter().map(CallMade::to_json).collect::<Vec<_>>(),
            "run_id": run_id.as_str(),
        });
        if let (Some(content), Some(first)) = (content.as_object_mut(), replayed_from) {
            content.insert("replayed_from_run_id".to_owned(), first.as_str().into());
        }
        if self.is_done {
            ToolAnswer::done(content)
        } else {
            ToolAnswer::failed(content)
        }
    }
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
            "\n[truncated: the first {} of {} bytes]",
            output.bytes.len(),
            output.written_bytes
        ));
    }
    text
}

/// What the run said of itself, and what has to be said of it.
fn error(ran: &Ran, limits: &Limits) -> Option<String> {
    let mut lines = Vec::new();
    let own = text(&ran.stderr);
    if !own.is_empty() {
        lines.push(own);
    }
    match &ran.ended {
        Ended::Exited(0) => {}
        Ended::Exited(code) if lines.is_empty() => {
            lines.push(format!("it ended with exit code {code}"))
        }
        Ended::Exited(_) => {}
        Ended::Signalled(signal) => lines.push(format!("it was ended by signal {signal}")),
        Ended::Stopped(why) => lines.push(stopped(*why, limits)),
    }
    if let Some(Err(error)) = &ran.committed {
        lines.push(match error {
            CommitError::OverLimit { .. } => format!("none of its files were kept: {error}"),
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

fn stopped(why: Stopped, limits: &Limits) -> String {
    match why {
        Stopped::WallTime => format!(
            "timed out: it took longer than {} ms, and was stopped",
            limits.wall_time.as_millis()
        ),
        Stopped::CpuTime => format!(
            "killed: it used more than {} ms of processor time",
            limits.cpu_time.as_millis()
        ),
        Stopped::Memory => format!(
            "killed: it used more than {} bytes of memory",
            limits.memory_bytes
        ),
        Stopped::Disk => format!(
            "killed: its files were more than {} bytes or {} in number",
            limits.disk_bytes, limits.inodes
        ),
        Stopped::Asked => "killed: the gateway was asked to stop it".to_owned(),
    }
}

/// Which limits the run met, by the names of the policy.
fn limits_hit(ran: &Ran) -> Vec<&'static str> {
    let mut hit = Vec::new();
    match ran.ended {
        Ended::Stopped(Stopped::WallTime) => hit.push("max_execution_time_ms"),
        Ended::Stopped(Stopped::CpuTime) => hit.push("max_cpu_time_ms"),
        Ended::Stopped(Stopped::Memory) => hit.push("max_memory_mb"),
        Ended::Stopped(Stopped::Disk) => hit.push("max_total_disk_mb"),
        Ended::Exited(_) | Ended::Signalled(_) | Ended::Stopped(Stopped::Asked) => {}
    }
    if ran.stdout.is_truncated() || ran.stderr.is_truncated() {
        hit.push("output_bytes_max");
    }
    if let Some(Err(CommitError::OverLimit { limit, .. })) = &ran.committed {
        hit.push(limit);
    }
    hit
}

fn files(committed: &Result<Committed, CommitError>) -> Value {
    let refused =
        |refused: &Refused| json!({ "path": refused.path, "reason": refused.reason.to_string() });
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

/// Milliseconds with one digit after the point: a run may take less than one.
fn rounded_ms(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 10_000.0).round() / 10.0
}

/// The output schema. Nothing of `metrics` is required: a call that ran nothing has none.
pub(super) fn schema() -> Value {
    let number = |meaning: &str| json!({ "type": "number", "description": meaning });
    let whole = |meaning: &str| json!({ "type": "integer", "description": meaning });
    json!({
        "type": "object",
        "properties": {
            "output": { "type": "string", "description": "What the run printed." },
            "error": {
                "type": ["string", "null"],
                "description": "What it wrote to its standard error, and why it did not complete.",
            },
            "metrics": {
                "type": "object",
                "properties": {
                    "run_id": { "type": "string" },
                    "code_hash": { "type": "string", "description": "SHA-256 of the code, in hex." },
                    "runtime": { "type": "string", "enum": ["python", "deno", "shell"] },
                    "outcome": {
                        "type": "string",
                        "enum": RunOutcome::ALL.map(RunOutcome::as_str),
                    },
                    "exit_code": { "type": ["integer", "null"] },
                    "signal": { "type": ["integer", "null"] },
                    "wall_time_ms": number("From the start of the program to its end."),
                    "cpu_time_ms": number("Processor time of the run's own processes."),
                    "start_time_ms": number("What it took to build the sandbox."),
                    "memory_peak_bytes": whole("The most memory at any moment."),
                    "bytes_written": whole("What was written to standard output."),
                    "bytes_error": whole("What was written to standard error."),
                    "tool_call_count": whole("How many calls of tools the code made."),
                    "tool_latency_p50_ms": { "type": ["number", "null"] },
                    "tool_latency_p95_ms": { "type": ["number", "null"] },
                    "tool_latency_p99_ms": { "type": ["number", "null"] },
                    "error_rate": number("Which part of the calls failed."),
                    "limits_hit": { "type": "array", "items": { "type": "string" } },
                    "isolation": {
                        "type": "object",
                        "properties": {
                            "tier": { "type": "string" },
                            "layers": { "type": "array", "items": { "type": "string" } },
                        },
                    },
                    "files": {
                        "type": ["object", "null"],
                        "description": "What of the files the run wrote was kept.",
                    },
                    "pattern": { "type": ["string", "null"], "description": "What blocked it." },
                    "line": { "type": ["integer", "null"], "description": "Where in the code." },
                },
            },
            "tool_calls_made": {
                "type": "array",
                "description": "The calls that the code made, in their order; not more than are kept.",
                "items": { "type": "object" },
            },
            "run_id": { "type": "string" },
            "replayed_from_run_id": { "type": "string", "description": "Of a replay." },
            "retry_after_ms": { "type": "integer", "description": "When rate limited." },
        },
        "required": ["output", "error", "metrics", "tool_calls_made"],
    })
}
