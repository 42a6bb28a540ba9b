//! The result of a call: text for people, and structured content about the run.

use mooring_session::time::Millis;
use serde_json::{Value, json};

use crate::output::Findings;
use crate::process::{CompletedRun, ProcessExit};

/// Most of stderr that is included, in characters.
const STDERR_CHARS_MAX: usize = 2_000;

/// Remarks added to the answer of a call, besides the run's own output.
#[derive(Debug, Default)]
pub(super) struct CallNotes {
    pub(super) parent: Option<String>,
    pub(super) is_resumed: bool,
    /// Why the agent started a new conversation.
    pub(super) started_fresh: Option<&'static str>,
    /// Remarks about the conversation.
    pub(super) remarks: Vec<&'static str>,
}

/// Whether a run succeeded.
pub(super) fn is_success(ran: &CompletedRun) -> bool {
    ran.ending.is_success() && !ran.findings.says_error
}

/// The `result` of a call whose program ran.
pub(super) fn run_answer(ran: &CompletedRun, notes: &CallNotes) -> String {
    let Findings {
        session,
        result,
        is_cut,
        ..
    } = &ran.findings;
    let error = (!is_success(ran)).then(|| failure_text(ran));
    let said = result.as_ref().filter(|result| !result.trim().is_empty());
    let mut text = match (said, &error) {
        (Some(result), None) => result.clone(),
        (Some(result), Some(error)) => format!("{result}\n\n{error}"),
        (None, Some(error)) => error.clone(),
        (None, None) => String::new(),
    };
    for note in notes.started_fresh.iter().chain(&notes.remarks) {
        text.push_str("\n\n(");
        text.push_str(note);
        text.push(')');
    }
    let exit_code = match ran.ending {
        ProcessExit::Exited { code, .. } => code,
        _ => None,
    };
    let content = json!({
        "result": result,
        "error": error,
        "parentSessionId": notes.parent,
        "agentSessionId": session,
        "resumed": notes.is_resumed,
        "startedFresh": notes.started_fresh,
        "exitCode": exit_code,
        "durationMs": Millis::from(ran.wall_time).get(),
        "truncated": is_cut,
    });
    result_json(&text, &content, error.is_some())
}

/// The `result` of a call whose program did not run.
pub(super) fn refused(message: &str) -> String {
    let content = json!({
        "result": null,
        "error": message,
        "parentSessionId": null,
        "agentSessionId": null,
        "resumed": false,
        "startedFresh": null,
        "exitCode": null,
        "durationMs": 0,
        "truncated": false,
    });
    result_json(message, &content, true)
}

fn result_json(text: &str, content: &Value, is_error: bool) -> String {
    json!({
        "content": [{ "type": "text", "text": text }],
        "structuredContent": content,
        "isError": is_error,
    })
    .to_string()
}

fn failure_text(ran: &CompletedRun) -> String {
    let how = match &ran.ending {
        ProcessExit::Exited { .. } if ran.ending.is_success() => {
            "the agent reported a failure".to_owned()
        }
        ProcessExit::Exited { said, .. } => format!("the agent's program failed: {said}"),
        ProcessExit::TimedOut => "the agent took too long, and was ended".to_owned(),
        ProcessExit::OutputTooLong => "the agent printed too much, and was ended".to_owned(),
        ProcessExit::Stopped => "the call was cancelled, and the agent was ended".to_owned(),
        ProcessExit::Broken(_) => "the connection to the agent's program broke".to_owned(),
    };
    let said = ran.findings.error.clone().unwrap_or_default();
    let stderr = ran.stderr.join("\n");
    let skipped = stderr.chars().count().saturating_sub(STDERR_CHARS_MAX);
    let last: String = stderr.chars().skip(skipped).collect();
    let parts = [how.as_str(), said.trim(), last.trim()];
    let parts = parts.into_iter().filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join("\n")
}
