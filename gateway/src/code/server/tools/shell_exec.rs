//! `shell_exec {code, language?, timeout_ms?}`: runs code in the sandbox, or a line of the one-line shell.
//!
//! In this order: the arguments are read, the language is chosen, the runtime is looked for, the code is scanned for
//! patterns, the rate is asked for; and only then is there a session and a run.

mod choose;
mod execute;
mod report;

use std::time::Duration;

use mooring_sandbox::Limits;
use serde_json::{Value, json};

pub(in crate::code::server) use self::execute::{Execution, execute};
use super::super::answer::ToolAnswer;
use super::super::{CallContext, CodeServer};
use crate::code::place::Language;
use crate::code::records::RunId;
use crate::mcp::arguments::{ArgumentError, Arguments};
use crate::settings::CodePolicy;

/// The least that a call may ask for, in milliseconds.
const TIMEOUT_MS_MIN: u64 = 100;
/// What a JSON number can say exactly.
const TIMEOUT_MS_MAX: u64 = 9_007_199_254_740_991;

/// What a call asks for.
#[derive(Debug, PartialEq, Eq)]
struct ShellExec {
    code: String,
    language: Option<Language>,
    timeout: Option<Duration>,
}

impl ShellExec {
    fn read(mut arguments: Arguments) -> Result<Self, ArgumentError> {
        let code = arguments.text("code", Limits::SOURCE_BYTES_MAX)?;
        // Python would run what stands before it, and say nothing of the rest.
        if code.contains('\0') {
            return Err(ArgumentError::Nul("code"));
        }
        let language = super::language(&mut arguments)?;
        let timeout = arguments.number_if_given("timeout_ms", TIMEOUT_MS_MIN..=TIMEOUT_MS_MAX)?;
        // Reserved by the contract, and without effect.
        arguments.ignore("stream");
        arguments.finish()?;
        Ok(Self {
            code,
            language,
            timeout: timeout.map(Duration::from_millis),
        })
    }
}

/// Runs.
pub(in crate::code::server) async fn call(
    server: &CodeServer,
    context: &CallContext,
    arguments: Arguments,
) -> ToolAnswer {
    let request = match ShellExec::read(arguments) {
        Ok(request) => request,
        Err(error) => return report::refused(error),
    };
    let execution = Execution {
        run_id: RunId::new(),
        code: request.code.into(),
        language: request.language,
        timeout: request.timeout,
        replay: None,
    };
    execute(server, context, execution).await.answer
}

pub(super) fn definition(policy: &CodePolicy) -> Value {
    let limits = &policy.limits;
    json!({
        "name": "shell_exec",
        "title": "Run code",
        "description": format!(
            "Runs Python, TypeScript or JavaScript in a sandbox, or a line of simple commands ({}, with pipes). Code can \
             call the tools of other servers as functions (see tool_search). Files in /scratch and /results stay for \
             the next call; /tools and /skills are read-only. Nothing else stays: not variables, not processes.",
            mooring_sandbox::TOOLS.join(" ")
        ),
        "inputSchema": {
            "type": "object",
            "properties": {
                "code": {
                    "type": "string",
                    "maxLength": Limits::SOURCE_BYTES_MAX,
                    "description": "Source code; what it prints is the answer. Without a language, one line that begins \
                                    with one of the simple commands is run as such.",
                },
                "language": {
                    "type": "string",
                    "enum": ["python", "typescript", "javascript"],
                    "description": format!(
                        "What the code is written in. Default: a line of simple commands, else {}.",
                        policy.language
                    ),
                },
                "timeout_ms": {
                    "type": "integer",
                    "minimum": TIMEOUT_MS_MIN,
                    "description": format!(
                        "Longest time of the run in milliseconds; at most {}, which is also the default.",
                        limits.wall_time.as_millis()
                    ),
                },
            },
            "required": ["code"],
            "additionalProperties": false,
        },
        "outputSchema": report::schema(),
        "annotations": {
            "readOnlyHint": false,
            "destructiveHint": true,
            "idempotentHint": false,
            "openWorldHint": false,
        },
    })
}
