//! What a run is answered with, in the form that `code.answer` names.
//!
//! Brief: `output`, and only where they say something `error`, `truncated` and `run_id`; the model reads what was
//! printed, and the error. Full: output, error, metrics, tool_calls_made and run_id, as ContextForge's ADR-0041 has them.
//!
//! Invariant: what is answered meets the output schema of the same form, errors included.

use mooring_session::time::Millis;
use serde_json::{Map, Value, json};

use super::execution::Execution;
use super::report::Report;
use crate::records::{CallMade, CallsMade};
use crate::server::answer::ToolAnswer;
use crate::server::long_output::abridged;
use mooring_settings::AnswerForm;

/// What a model reads of a run that printed nothing: an empty text is refused by some hosts.
const NOTHING_PRINTED: &str = "(nothing was printed)";
/// Most calls of tools that a brief answer lists; the record of the run has more.
const CALLS_MAX: usize = 100;

/// Nothing ran.
pub(super) fn refused(message: impl std::fmt::Display, form: AnswerForm) -> ToolAnswer {
    let error = message.to_string();
    ToolAnswer::failed(match form {
        AnswerForm::Brief => json!({ "output": "", "error": error }),
        AnswerForm::Full => json!({
            "output": "",
            "error": error,
            "metrics": {},
            "tool_calls_made": [],
        }),
    })
    .with_text(error)
}

/// Nothing ran, because too much ran lately.
pub(super) fn rate_limited(limit: u64, retry_after: Millis, form: AnswerForm) -> ToolAnswer {
    let retry_after_ms = retry_after.get();
    let error = format!(
        "rate limited: {limit} runs a minute are allowed; try again in {retry_after_ms} ms"
    );
    let mut content = refused(&error, form).into_content();
    if let Some(content) = content.as_object_mut() {
        content.insert("retry_after_ms".to_owned(), retry_after_ms.into());
    }
    ToolAnswer::failed(content).with_text(error)
}

/// What came of it.
pub(super) fn of(report: Report, execution: &Execution, calls: &CallsMade) -> ToolAnswer {
    match execution.answer {
        AnswerForm::Brief => brief(report, execution, calls),
        AnswerForm::Full => full(report, execution, calls),
    }
}

fn brief(report: Report, execution: &Execution, calls: &CallsMade) -> ToolAnswer {
    let completion = report.completion;
    let mut lines: Vec<String> = completion.error.into_iter().collect();
    lines.extend(report.losses);
    let error = (!lines.is_empty()).then(|| lines.join("\n"));
    let short_output = abridged(&completion.output, report.saved_output.as_ref());
    let short_error =
        (error.as_deref()).and_then(|error| abridged(error, report.saved_error.as_ref()));
    let is_truncated = report.is_truncated || short_output.is_some() || short_error.is_some();
    let output = short_output.unwrap_or(completion.output);
    let error = short_error.or(error);
    let text = text(&output, error.as_deref(), report.is_done);
    let mut content = Map::from_iter([("output".to_owned(), output.into())]);
    if let Some(error) = error {
        content.insert("error".to_owned(), error.into());
    }
    if is_truncated {
        content.insert("truncated".to_owned(), true.into());
    }
    if is_truncated || !report.is_done {
        let run_id = execution.run_id.as_str();
        content.insert("run_id".to_owned(), run_id.into());
    }
    let run = members(completion.metrics, execution, calls, CALLS_MAX);
    ToolAnswer::new(content.into(), report.is_done)
        .with_text(text)
        .with_run(run.into())
}

fn full(report: Report, execution: &Execution, calls: &CallsMade) -> ToolAnswer {
    let completion = report.completion;
    let mut content = members(completion.metrics, execution, calls, usize::MAX);
    content.insert("output".to_owned(), completion.output.into());
    content.insert("error".to_owned(), completion.error.into());
    ToolAnswer::new(content.into(), report.is_done)
}

/// How the run went: what both forms have of it, if not at the same place.
fn members(
    metrics: Map<String, Value>,
    execution: &Execution,
    calls: &CallsMade,
    calls_max: usize,
) -> Map<String, Value> {
    let listed = calls.calls.iter().take(calls_max).map(CallMade::to_json);
    let mut members = Map::from_iter([
        ("run_id".to_owned(), execution.run_id.as_str().into()),
        ("metrics".to_owned(), metrics.into()),
        ("tool_calls_made".to_owned(), listed.collect()),
    ]);
    if let Some((of, _)) = &execution.replay {
        let first = of.run_id.as_str();
        members.insert("replayed_from_run_id".to_owned(), first.into());
    }
    members
}

/// What the model reads.
fn text(output: &str, error: Option<&str>, is_done: bool) -> String {
    let Some(error) = error else {
        let text = if output.is_empty() {
            NOTHING_PRINTED
        } else {
            output
        };
        return text.to_owned();
    };
    let mut text = output.to_owned();
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    if is_done {
        text.push_str("stderr:\n");
    }
    text.push_str(error);
    text
}

/// The output schema.
pub(super) fn schema(form: AnswerForm) -> Value {
    let text = json!({ "type": "string" });
    match form {
        AnswerForm::Brief => json!({
            "type": "object",
            "properties": {
                "output": text,
                "error": text,
                "truncated": { "type": "boolean" },
                "run_id": text,
                "retry_after_ms": { "type": "integer" },
            },
            "required": ["output"],
        }),
        AnswerForm::Full => json!({
            "type": "object",
            "properties": {
                "output": text,
                "error": { "type": ["string", "null"] },
                "metrics": { "type": "object" },
                "tool_calls_made": { "type": "array", "items": { "type": "object" } },
                "run_id": text,
                "retry_after_ms": { "type": "integer" },
            },
            "required": ["output", "error", "metrics", "tool_calls_made"],
        }),
    }
}
