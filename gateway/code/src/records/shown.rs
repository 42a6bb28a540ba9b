//! Runs, calls and events as the REST interface shows them.

use serde_json::{Value, json};

use super::call_lines::CallMade;
use super::calls_read::{RecordedCall, RecordedOutcome};
use super::events::StoredEvent;
use super::list::{RunRecord, WholeRun};
use mooring_store::rfc3339;

impl RunRecord {
    /// As lists have it.
    pub fn to_json(&self) -> Value {
        let begun = &self.begun;
        let ended = self.ended.as_ref();
        let started_at = rfc3339(begun.started_at_ms);
        let calls = ended
            .map(|ended| &*ended.tool_calls_made)
            .unwrap_or_default();
        let events = ended
            .map(|ended| &*ended.security_events)
            .unwrap_or_default();
        json!({
            "id": begun.id,
            "server_id": begun.server_id,
            "session_id": begun.session_id,
            "user_email": begun.user_email,
            "team_id": begun.team_id,
            "token_teams": begun.token_teams,
            "language": begun.language,
            "runtime": begun.runtime,
            "code_hash": begun.code_hash,
            "code_size_bytes": begun.code_size_bytes,
            "status": self.status(),
            "created_at": started_at,
            "started_at": started_at,
            "finished_at": ended.map(|ended| rfc3339(ended.finished_at_ms)),
            "worker": begun.worker,
            "timeout_ms": begun.timeout_ms,
            "replayed_from_run_id": begun.replayed_from_run_id,
            "replay_mode": begun.replay_mode,
            "metrics": ended.map(|ended| &ended.metrics),
            "tool_calls_made": calls.iter().map(CallMade::to_json).collect::<Vec<_>>(),
            "tool_calls_total": ended.map(|ended| ended.tool_calls_total),
            "security_events": events.iter().map(StoredEvent::to_json).collect::<Vec<_>>(),
            "security_events_total": ended.map(|ended| ended.security_events_total),
            "bodies_omitted": ended.map(|ended| ended.are_bodies_omitted),
        })
    }
}

impl CallMade {
    /// As answers and lists have it.
    pub(crate) fn to_json(&self) -> Value {
        json!({
            "name": self.name,
            "started_at": rfc3339(self.started_at_ms),
            "latency_ms": self.latency_ms,
            "success": self.success,
            "error": self.error,
        })
    }
}

impl StoredEvent {
    /// As lists have it.
    pub fn to_json(&self) -> Value {
        json!({
            "id": self.id,
            "kind": self.kind,
            "message": self.message,
            "server_id": self.server_id,
            "user_email": self.user_email,
            "run_id": self.run_id,
            "tool": self.tool,
            "call": self.call,
            "created_at": rfc3339(self.created_at_ms),
        })
    }
}

impl WholeRun {
    /// As it is shown: what lists have, and `code_body`, `output`, `error` and `tool_calls` with arguments and results.
    pub fn to_json(&self) -> Value {
        let mut json = self.record.to_json();
        if let Value::Object(fields) = &mut json {
            let calls = self.calls.calls.iter().map(call_json).collect();
            fields.insert("code_body".to_owned(), self.code.clone().into());
            fields.insert("output".to_owned(), self.texts.output.clone().into());
            fields.insert("error".to_owned(), self.texts.error.clone().into());
            fields.insert("tool_calls".to_owned(), Value::Array(calls));
            let is_complete = self.calls.is_complete;
            fields.insert("tool_calls_complete".to_owned(), is_complete.into());
        }
        json
    }
}

fn call_json(call: &RecordedCall) -> Value {
    use RecordedOutcome as Outcome;
    let (state, result, error) = match &call.outcome {
        Outcome::Result(result) => ("answered", Some(result), None),
        Outcome::Error(error) => {
            let error = json!({"kind": error.kind, "message": error.message});
            ("failed", None, Some(error))
        }
        Outcome::Omitted => ("omitted", None, None),
        Outcome::Unended => ("unended", None, None),
    };
    json!({
        "seq": call.seq,
        "server": call.server,
        "tool": call.tool,
        "arguments": call.arguments,
        "started_at": rfc3339(call.started_at_ms),
        "latency_ms": call.latency_ms,
        "outcome": state,
        "result": result,
        "error": error,
    })
}
