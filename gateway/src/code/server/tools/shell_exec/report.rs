//! What a run is answered with.
//!
//! Fields are those of the contract: output, error, metrics, tool_calls_made and run_id. `error` is what the run wrote
//! to its standard error, and why it did not complete; null where there is neither.

use std::time::{Duration, SystemTime};

use mooring_sandbox::tree::{CommitError, Committed, Refused};
use mooring_sandbox::{Ended, Layer, Limits, Output, Stopped};
use mooring_session::time::Millis;
use serde_json::{Value, json};

use super::super::super::answer::ToolAnswer;
use super::super::super::failure::is_full;
use super::super::super::runs::Ran;
use super::choose::{Refusal, RuntimeName};
use crate::digest;
use crate::metrics::RunOutcome;

/// The name of one run: sorted by time, and not to be guessed.
pub(super) struct RunId(String);

impl RunId {
    pub(super) fn new() -> Self {
        let now_ms = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, millis);
        Self(ulid::Ulid::from_parts(now_ms, rand::random()).to_string())
    }
}

/// What is told of a run whatever came of it.
pub(super) struct Told<'a> {
    pub(super) run_id: RunId,
    pub(super) code: &'a str,
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

    /// The code was looked at and not run.
    pub(super) fn not_chosen(&self, refusal: &Refusal) -> ToolAnswer {
        let Some(runtime) = refusal.blocked_runtime() else {
            return refused(refusal);
        };
        let (pattern, line, exit_code) = match refusal {
            Refusal::Blocked(found, _) => (Some(&*found.pattern), Some(found.line), None),
            Refusal::Line(error) => (None, None, Some(error.exit_code())),
            Refusal::Missing { .. } | Refusal::Unavailable(_) => (None, None, None),
        };
        let metrics = json!({
            "run_id": self.run_id.0,
            "code_hash": self.code_hash(),
            "runtime": runtime.as_str(),
            "outcome": RunOutcome::Blocked.as_str(),
            "pattern": pattern,
            "line": line,
            "exit_code": exit_code,
            "tool_call_count": 0,
        });
        ToolAnswer::failed(json!({
            "output": "",
            "error": refusal.to_string(),
            "metrics": metrics,
            "tool_calls_made": [],
            "run_id": self.run_id.0,
        }))
    }

    /// It ran.
    pub(super) fn ran(&self, runtime: RuntimeName, ran: &Ran, limits: &Limits) -> ToolAnswer {
        let outcome = outcome(&ran.ended);
        let (exit_code, signal) = match ran.ended {
            Ended::Exited(code) => (Some(code), None),
            Ended::Signalled(signal) => (None, Some(signal)),
            Ended::Stopped(_) => (None, None),
        };
        let content = json!({
            "output": text(&ran.stdout),
            "error": error(ran, limits),
            "metrics": {
                "run_id": self.run_id.0,
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
                "tool_call_count": 0,
                "limits_hit": limits_hit(ran),
                "isolation": {
                    "tier": ran.tier.as_str(),
                    "layers": ran.layers.iter().copied().map(Layer::as_str).collect::<Vec<_>>(),
                },
                "files": files(&ran.committed),
            },
            "tool_calls_made": [],
            "run_id": self.run_id.0,
        });
        match (outcome, &ran.committed) {
            (RunOutcome::Completed, Ok(_)) => ToolAnswer::done(content),
            _ => ToolAnswer::failed(content),
        }
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
    if let Err(error) = &ran.committed {
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
    if let Err(CommitError::OverLimit { limit, .. }) = &ran.committed {
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

fn millis(duration: Duration) -> u64 {
    Millis::from(duration).get()
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
                    "tool_call_count": whole("How many tools the code called."),
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
            "tool_calls_made": { "type": "array", "items": { "type": "object" } },
            "run_id": { "type": "string" },
            "retry_after_ms": { "type": "integer", "description": "When rate limited." },
        },
        "required": ["output", "error", "metrics", "tool_calls_made"],
    })
}
