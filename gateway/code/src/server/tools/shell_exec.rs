//! `shell_exec {code, language?, timeout_ms?}`: runs code in the sandbox, or a line of the one-line shell.
//!
//! In this order: the arguments are read, the language is chosen, the runtime is looked for, the code is scanned for
//! patterns, the rate is asked for; and only then is there a session and a run.

mod answer;
mod brief_errors;
mod choose;
mod execute;
mod execution;
mod report;

use std::time::Duration;

use mooring_sandbox::Limits;
use serde_json::{Value, json};

pub(in crate::server) use self::execute::execute;
pub(in crate::server) use self::execution::Execution;
use super::arguments;
use crate::records::RunId;
use crate::server::answer::ToolAnswer;
use crate::server::code_server::{CallContext, CodeServer};
use crate::server::directories::DirectoryWords;
use crate::server::offer::LanguageOffer;
use mooring_protocol::arguments::{ArgumentError, Arguments};
use mooring_settings::{AnswerForm, CodePolicy, Language};

/// The least that a call may ask for, in milliseconds.
const TIMEOUT_MS_MIN: u64 = 100;
/// What a JSON number can say exactly.
const TIMEOUT_MS_MAX: u64 = 9_007_199_254_740_991;

/// The execution that a call asks for.
fn read(mut arguments: Arguments, answer: AnswerForm) -> Result<Execution, ArgumentError> {
    let code = arguments.text("code", Limits::SOURCE_BYTES_MAX)?;
    // Python would run the text before it, and ignore the rest.
    if code.contains('\0') {
        return Err(ArgumentError::Nul("code"));
    }
    let language = arguments::language(&mut arguments)?;
    let timeout = arguments.number_if_given("timeout_ms", TIMEOUT_MS_MIN..=TIMEOUT_MS_MAX)?;
    // Reserved by the contract, and without effect.
    arguments.ignore("stream");
    arguments.finish()?;
    Ok(Execution {
        run_id: RunId::new(),
        code: code.into(),
        language,
        timeout: timeout.map(Duration::from_millis),
        replay: None,
        answer,
    })
}

/// Runs.
pub(in crate::server) async fn call(
    server: &CodeServer,
    context: &CallContext,
    arguments: Arguments,
) -> ToolAnswer {
    let execution = match read(arguments, server.settings.answer) {
        Ok(execution) => execution,
        Err(error) => return refused(server, error),
    };
    let wall_time = server.policy.limits.wall_time;
    // Cut short, the run would end in the middle of its work.
    if let Some(asked) = execution.timeout.filter(|asked| *asked > wall_time) {
        let message = format!(
            "timeout_ms is {}, and a run may take {} at most: {}",
            asked.as_millis(),
            wall_time.as_millis(),
            DirectoryWords::of(&server.policy.limits.access).advice_to_split()
        );
        return refused(server, message);
    }
    execute(server, context, execution).await.answer
}

/// Refuses arguments that are none.
pub(in crate::server) fn refused(
    server: &CodeServer,
    message: impl std::fmt::Display,
) -> ToolAnswer {
    answer::refused(message, server.settings.answer)
}

pub(super) fn definition(policy: &CodePolicy, form: AnswerForm, offer: &LanguageOffer) -> Value {
    let limits = &policy.limits;
    let (line, code) = match offer.shell_tools.as_slice() {
        [] => (String::new(), "Source code."),
        tools => (
            format!(" but one line of {}, with pipes", tools.join(" ")),
            "Source code, or without a language one line of the commands above.",
        ),
    };
    let kept = match DirectoryWords::of(&limits.access).kept_in() {
        Some(kept) => format!(
            "Files in {kept} stay until {} after the last call; variables and processes",
            format_duration(policy.session_ttl)
        ),
        None => "Files, variables and processes".to_owned(),
    };
    let files = match Language::ALL.iter().all(|language| offer.has(*language)) {
        true => " python and typescript have files of their own; javascript shares typescript's.",
        false => "",
    };
    json!({
        "name": "shell_exec",
        "title": "Run code",
        "description": format!(
            "Runs {} in a sandbox with the standard library alone: no packages such as pandas, no other programs. Only \
             what it prints is answered, so filter and combine there. Top-level await works. Code can call other \
             servers' tools as functions: find them with tool_search. {kept} do not stay. There is no shell{line}.",
            offer.in_words(),
        ),
        "inputSchema": {
            "type": "object",
            "properties": {
                "code": {
                    "type": "string",
                    "description": code,
                },
                "language": {
                    "type": "string",
                    "enum": offer.names,
                    "description": format!("Default: {}.{files}", offer.default),
                },
                "timeout_ms": {
                    "type": "integer",
                    "minimum": TIMEOUT_MS_MIN,
                    "maximum": limits.wall_time.as_millis() as u64,
                    "description": format!("Default, and most: {}.", limits.wall_time.as_millis()),
                },
            },
            "required": ["code"],
            "additionalProperties": false,
        },
        "outputSchema": answer::schema(form),
        "annotations": { "readOnlyHint": false, "openWorldHint": false },
    })
}

/// A duration as people say it.
fn format_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    for (unit, length) in [("days", 86_400), ("hours", 3_600), ("minutes", 60)] {
        if seconds >= 2 * length && seconds.is_multiple_of(length) {
            return format!("{} {unit}", seconds / length);
        }
    }
    format!("{seconds} seconds")
}
