//! One execution, from its code to its record: what is to run is chosen, the rate is asked for, and then it runs.
//!
//! Invariant: code that was checked is recorded, whether it ran or not, and the record states what the caller was answered.

use std::sync::Arc;
use std::time::Duration;

use mooring_sandbox::{RefusedCall, RunEnd};
use mooring_session::names::Principal;
use mooring_session::time::Millis;
use tokio::task::spawn_blocking;

use super::super::super::answer::ToolAnswer;
use super::super::super::failure::Failure;
use super::super::super::nested::CallTarget;
use super::super::super::runs::{CompletedRun, Run, RunResult, WrittenFiles};
use super::super::super::{CallContext, CodeServer, CodeStorage};
use super::answer;
use super::choose::{self, RunRefusal};
use super::report::{Report, RunIdentity};
use crate::bridge::BridgeSummary;
use crate::calls::LostStates;
use crate::patterns::PatternMatch;
use crate::records::{CallsMade, EventKind, NewRun, ReplayOf, RunId, RunRecord, SecurityEvent};
use mooring_metrics as metrics;
use mooring_settings::{AnswerForm, Language};

/// Runs are counted over this time.
const RATE_WINDOW: Millis = Millis::new(60_000);
/// What the kernel ends a process with that makes a call of another architecture.
const SIGSYS: i32 = 31;
/// The system calls of a program that looks for a network.
const NETWORK_CALLS: [&str; 4] = ["socket", "connect", "bind", "listen"];

/// A run that is to be made, asked for by an agent or repeated.
pub(in crate::server) struct Execution {
    pub(in crate::server) run_id: RunId,
    pub(in crate::server) code: Arc<str>,
    pub(in crate::server) language: Option<Language>,
    pub(in crate::server) timeout: Option<Duration>,
    /// Set where it repeats an earlier run.
    pub(in crate::server) replay: Option<(ReplayOf, CallTarget)>,
    /// How much it answers.
    pub(in crate::server) answer: AnswerForm,
}

/// The answer of an execution, and its record.
pub(in crate::server) struct ExecutionOutcome {
    pub(in crate::server) answer: ToolAnswer,
    /// None where nothing ran.
    pub(in crate::server) record: Option<RunRecord>,
    pub(in crate::server) is_rate_limited: Option<Millis>,
}

/// Runs, and records it.
pub(in crate::server) async fn execute(
    server: &CodeServer,
    context: &CallContext,
    execution: Execution,
) -> ExecutionOutcome {
    let run_id = execution.run_id.clone();
    let code = Arc::clone(&execution.code);
    let run_identity = RunIdentity {
        run_id: &run_id,
        code: &code,
    };
    let choice = match choose::choose(server, &code, execution.language) {
        Ok(choice) => choice,
        Err(refusal) => {
            return answer_refusal(server, context, &execution, &run_identity, &refusal).await;
        }
    };
    if let Err(limited) = within_rate(server, &context.caller.principal, execution.answer).await {
        return limited;
    }
    let mut limits = server.policy.limits.clone();
    if let Some(timeout) = execution.timeout {
        limits.wall_time = limits.wall_time.min(timeout);
    }
    let record = new_run(
        server,
        context,
        &execution,
        choice.language,
        choice.runtime.as_str(),
    );
    let warnings = choice.warnings;
    let (calls, files) = match &execution.replay {
        None => (CallTarget::Tools, WrittenFiles::Kept),
        Some((_, calls)) => (calls.clone(), WrittenFiles::Dropped),
    };
    let lost = LostStates::default();
    let run = Run {
        lost: lost.clone(),
        language: choice.language,
        program: choice.program,
        limits: limits.clone(),
        record,
        calls,
        files,
        answer: execution.answer,
    };
    match server.run(context, run).await {
        Ok(mut over) => {
            let mut report = run_identity.report_result(choice.runtime, &mut over, &limits);
            report.note_lost_states(&lost.servers());
            metrics::code_run(
                choice.runtime.as_str(),
                report.outcome,
                over.ran.usage.wall_time,
            );
            answer_and_record(over, report, &execution, &warnings).await
        }
        Err(failure) => ExecutionOutcome::refused(failure, execution.answer),
    }
}

impl ExecutionOutcome {
    fn refused(message: impl std::fmt::Display, form: AnswerForm) -> Self {
        Self {
            answer: answer::refused(message, form),
            record: None,
            is_rate_limited: None,
        }
    }
}

/// Ends the record, and tells the same.
async fn answer_and_record(
    over: CompletedRun,
    mut report: Report,
    execution: &Execution,
    warnings: &[PatternMatch],
) -> ExecutionOutcome {
    let CompletedRun {
        ran,
        served,
        recording,
    } = over;
    let calls = recording.calls_made();
    report.note_calls(&calls);
    let mut events = events(&ran, &served, &report);
    events.extend(warnings.iter().map(warning));
    let finished = report.to_completion();
    let recorded = spawn_blocking(move || {
        for event in events {
            recording.event(event);
        }
        recording.finish(finished)
    })
    .await;
    ExecutionOutcome {
        answer: answer::of(report, execution, &calls),
        record: recorded.ok(),
        is_rate_limited: None,
    }
}

/// What of a run concerns those who watch over it.
fn events(ran: &RunResult, served: &BridgeSummary, report: &Report) -> Vec<SecurityEvent> {
    let mut events = Vec::new();
    for limit in report.limits_hit() {
        events.push(SecurityEvent::new(EventKind::LimitHit, limit));
    }
    for violation in &served.violations {
        events.push(SecurityEvent::new(
            EventKind::BridgeViolation,
            violation.to_string(),
        ));
    }
    if let Some(Ok(committed)) = &ran.committed {
        for refused in &committed.refused {
            let message = format!("{}: {}", refused.path, refused.reason);
            events.push(SecurityEvent::new(EventKind::FileRefused, message));
        }
    }
    events.extend(ran.refused_calls.iter().map(refused_call));
    if let RunEnd::Signalled(signal) = ran.ended
        && signal == SIGSYS
    {
        let message = "the run was ended by the system call filter";
        events.push(SecurityEvent::new(EventKind::SandboxViolation, message));
    }
    events
}

/// A refused system call: of the network, which code tries that does not know that it has none, or of something else that
/// is out of the sandbox.
fn refused_call(refused: &RefusedCall) -> SecurityEvent {
    let RefusedCall { name, count } = refused;
    let kind = match NETWORK_CALLS.contains(&name.as_str()) {
        true => EventKind::NetworkRefused,
        false => EventKind::SandboxViolation,
    };
    let message = format!("the system call filter refused {name} ({count} times)");
    SecurityEvent::new(kind, message)
}

fn warning(found: &PatternMatch) -> SecurityEvent {
    let PatternMatch {
        pattern,
        line,
        text,
    } = found;
    let message = format!("the code meets the pattern {pattern:?} in line {line}: {text}");
    SecurityEvent::new(EventKind::PolicyWarning, message)
}

fn new_run(
    server: &CodeServer,
    context: &CallContext,
    execution: &Execution,
    language: Language,
    runtime: &'static str,
) -> NewRun {
    NewRun {
        id: execution.run_id.clone(),
        session_id: None,
        principal: context.caller.principal.clone(),
        teams: context.caller.teams.to_vec(),
        team: server.team(),
        language,
        runtime,
        code: Arc::clone(&execution.code),
        timeout_ms: execution.timeout.map(|timeout| Millis::from(timeout).get()),
        replay_of: execution.replay.as_ref().map(|(of, _)| of.clone()),
    }
}

/// What was looked at and not run is recorded all the same.
async fn answer_refusal(
    server: &CodeServer,
    context: &CallContext,
    execution: &Execution,
    run_identity: &RunIdentity<'_>,
    refusal: &RunRefusal,
) -> ExecutionOutcome {
    let (Some(runtime), Some(mut report)) = (
        refusal.blocked_runtime(),
        run_identity.report_refusal(refusal),
    ) else {
        return ExecutionOutcome::refused(refusal, execution.answer);
    };
    metrics::code_run(runtime.as_str(), report.outcome, Duration::ZERO);
    let none = CallsMade::default();
    report.note_calls(&none);
    if let Ok(CodeStorage { records, .. }) = &server.services.storage {
        let language = server.language_or_default(execution.language);
        let run = new_run(server, context, execution, language, runtime.as_str());
        let event = (refusal.is_policy_block())
            .then(|| SecurityEvent::new(EventKind::PolicyBlock, refusal.to_string()));
        let (records, id, finished) = (records.clone(), server.id.clone(), report.to_completion());
        // What cannot be recorded is counted there.
        let _ = spawn_blocking(move || records.blocked(&id, run, finished, event)).await;
    }
    ExecutionOutcome {
        answer: answer::of(report, execution, &none),
        record: None,
        is_rate_limited: None,
    }
}

/// Whether the principal may run now. Where the store cannot say, nothing runs.
async fn within_rate(
    server: &CodeServer,
    principal: &Principal,
    form: AnswerForm,
) -> Result<(), ExecutionOutcome> {
    let store = server.services.sessions.store();
    let name = server.rate_name(principal);
    let limit = server.policy.runs_per_minute;
    match store.rate(&name, limit, RATE_WINDOW, 1).await {
        Ok(rated) if rated.allowed => Ok(()),
        Ok(rated) => {
            metrics::code_rate_limited();
            let message = format!("more than {limit} runs within a minute");
            let event = SecurityEvent::new(EventKind::RateLimited, message);
            server.note_event(principal, event).await;
            Err(ExecutionOutcome {
                answer: answer::rate_limited(limit, rated.retry_after, form),
                record: None,
                is_rate_limited: Some(rated.retry_after),
            })
        }
        Err(error) => {
            tracing::warn!(%error, "run rate limit not checked");
            Err(ExecutionOutcome::refused(Failure::from(error), form))
        }
    }
}
