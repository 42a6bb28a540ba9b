//! `shell_exec {code, language?, timeout_ms?}`: runs code in the sandbox, or a line of the one-line shell.
//!
//! In this order: the arguments are read, the language is chosen, the runtime is looked for, the code is scanned for
//! patterns, the rate is asked for; and only then is there a session and a run.

mod choose;
mod report;

use std::time::Duration;

use mooring_sandbox::Limits;
use mooring_session::names::Principal;
use mooring_session::time::Millis;
use serde_json::{Value, json};

use self::choose::{Choice, Refusal};
use self::report::{RunId, Told};
use super::super::CodeServer;
use super::super::answer::ToolAnswer;
use super::super::arguments::{ArgumentError, Arguments};
use super::super::runs::Run;
use crate::code::place::Language;
use crate::metrics::{self, RunOutcome};
use crate::settings::CodePolicy;

/// The least that a call may ask for, in milliseconds.
const TIMEOUT_MS_MIN: u64 = 100;
/// What a JSON number can say exactly.
const TIMEOUT_MS_MAX: u64 = 9_007_199_254_740_991;
/// Runs are counted over this time.
const RATE_WINDOW: Millis = Millis::new(60_000);

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
        let language = arguments.language()?;
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
    principal: &Principal,
    arguments: Arguments,
) -> ToolAnswer {
    let request = match ShellExec::read(arguments) {
        Ok(request) => request,
        Err(error) => return report::refused(error),
    };
    let told = Told {
        run_id: RunId::new(),
        code: &request.code,
    };
    let choice = match choose::choose(server, &request.code, request.language) {
        Ok(choice) => choice,
        Err(refusal) => return not_chosen(&told, &refusal),
    };
    if let Err(limited) = within_rate(server, principal).await {
        return limited;
    }
    let Choice {
        language,
        runtime,
        program,
    } = choice;
    let mut limits = server.policy.limits.clone();
    if let Some(timeout) = request.timeout {
        limits.wall_time = limits.wall_time.min(timeout);
    }
    let run = Run {
        language,
        program,
        limits: limits.clone(),
    };
    match server.run(principal, run).await {
        Ok(ran) => {
            let outcome = report::outcome(&ran.ended);
            metrics::code_run(runtime.as_str(), outcome, ran.usage.wall_time);
            told.ran(runtime, &ran, &limits)
        }
        Err(failure) => report::refused(failure),
    }
}

fn not_chosen(told: &Told<'_>, refusal: &Refusal) -> ToolAnswer {
    if let Some(runtime) = refusal.blocked_runtime() {
        metrics::code_run(runtime.as_str(), RunOutcome::Blocked, Duration::ZERO);
    }
    told.not_chosen(refusal)
}

/// Whether the principal may run now. Where the store cannot say, nothing runs.
async fn within_rate(server: &CodeServer, principal: &Principal) -> Result<(), ToolAnswer> {
    let store = server.services.affinity.store();
    let name = server.rate_name(principal);
    let limit = server.policy.runs_per_minute;
    match store.rate(&name, limit, RATE_WINDOW, 1).await {
        Ok(rated) if rated.allowed => Ok(()),
        Ok(rated) => {
            metrics::code_rate_limited();
            Err(report::rate_limited(limit, rated.retry_after))
        }
        Err(error) => {
            tracing::warn!(%error, "the rate of runs could not be asked for");
            Err(report::refused(super::super::failure::Failure::from(error)))
        }
    }
}

pub(super) fn definition(policy: &CodePolicy) -> Value {
    let limits = &policy.limits;
    json!({
        "name": "shell_exec",
        "title": "Run code",
        "description": format!(
            "Runs Python, TypeScript or JavaScript in a sandbox without network, or a line of simple commands ({}, with \
             pipes). Files in /scratch and /results stay for the next call; /tools and /skills are read-only. Nothing \
             else stays: not variables, not processes.",
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
