//! One execution, from its code to its record: what is to run is chosen, the rate is asked for, and then it runs.
//!
//! Invariant: code that was checked is recorded, whether it ran or not, and the record states what the caller was answered.

use std::sync::Arc;
use std::time::Duration;

use mooring_sandbox::{RefusedCall, RunEnd};
use mooring_session::names::Principal;
use mooring_session::time::Millis;
use tokio::task::spawn_blocking;

use super::answer;
use super::choose::{self, RunRefusal};
use super::execution::Execution;
use super::report::Report;
use crate::calls::LostStates;
use crate::patterns::PatternMatch;
use crate::records::{CallsMade, EventKind, NewRun, RunRecord, SecurityEvent};
use crate::server::answer::ToolAnswer;
use crate::server::code_server::{CallContext, CodeServer};
use crate::server::failure::Failure;
use crate::server::run::{CallTarget, CompletedRun, Run, WrittenFiles};
use crate::server::services::CodeStorage;
use mooring_metrics::{self as metrics, RunOutcome};
use mooring_settings::{AnswerForm, Language};
use mooring_traces::{Span, SpanKind, TraceScope, attribute, in_scope};

/// Runs are counted over this time.
const RATE_WINDOW: Millis = Millis::new(60_000);
/// What the kernel ends a process with that makes a call of another architecture.
const SIGSYS: i32 = 31;
/// The system calls of a program that looks for a network.
const NETWORK_CALLS: [&str; 4] = ["socket", "connect", "bind", "listen"];

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
    let choice = match choose::choose(server, &execution.code, execution.language) {
        Ok(choice) => choice,
        Err(refusal) => return answer_refusal(server, context, &execution, &refusal).await,
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
    let mut span = Span::begin("run code", SpanKind::Internal);
    span.note_text(attribute::CODE_LANGUAGE, &choice.language.to_string());
    span.note(attribute::CODE_RUNTIME, choice.runtime.as_str());
    span.note_text(attribute::CODE_RUN_ID, execution.run_id.as_str());
    span.note_text(attribute::SERVER, server.id.as_str());
    let scope = span.scope().or_else(TraceScope::current);
    match in_scope(scope, server.run(context, run)).await {
        Ok(mut over) => {
            let runtime = choice.runtime;
            let report = Report::of_run(&execution, runtime, &mut over, &limits, &lost.servers());
            let (outcome, wall_time) = (report.completion.outcome, over.ran.usage.wall_time);
            metrics::code_run(runtime.as_str(), outcome, wall_time);
            server.note_run(&over.session, &execution.run_id, outcome, wall_time);
            if outcome != RunOutcome::Completed {
                span.fail(<&'static str>::from(outcome));
            }
            drop(span);
            answer_and_record(over, report, &execution, &warnings).await
        }
        Err(failure) => {
            span.fail("not_run");
            ExecutionOutcome::refused(failure, execution.answer)
        }
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
    let calls = over.recording.calls_made();
    report.note_calls(&calls);
    let mut events = events(&over, &report);
    events.extend(warnings.iter().map(warning));
    let (recording, finished) = (over.recording, report.completion.clone());
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
fn events(over: &CompletedRun, report: &Report) -> Vec<SecurityEvent> {
    let (ran, mut events) = (&over.ran, Vec::new());
    let mut note = |kind, message: String| events.push(SecurityEvent::new(kind, message));
    for limit in &report.limits_hit {
        note(EventKind::LimitHit, (*limit).to_owned());
    }
    for violation in &over.served.violations {
        note(EventKind::BridgeViolation, violation.to_string());
    }
    if let Some(Ok(committed)) = &ran.committed {
        for refused in &committed.refused {
            let message = format!("{}: {}", refused.path, refused.reason);
            note(EventKind::FileRefused, message);
        }
    }
    for refused in &ran.refused_calls {
        let RefusedCall { name, count } = refused;
        let message = format!("the system call filter refused {name} ({count} times)");
        note(kind_of_refused_call(name), message);
    }
    if ran.ended == RunEnd::Signalled(SIGSYS) {
        let message = "the run was ended by the system call filter";
        note(EventKind::SandboxViolation, message.to_owned());
    }
    for refused in &over.refused_requests {
        note(EventKind::NetworkRefused, refused.to_string());
    }
    events
}

/// A refused system call: of the network, which code tries that does not know that it has none, or of something else that
/// is out of the sandbox.
fn kind_of_refused_call(name: &str) -> EventKind {
    match NETWORK_CALLS.contains(&name) {
        true => EventKind::NetworkRefused,
        false => EventKind::SandboxViolation,
    }
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
    refusal: &RunRefusal,
) -> ExecutionOutcome {
    let (Some(runtime), Some(mut report)) = (
        refusal.blocked_runtime(),
        Report::of_refusal(execution, refusal),
    ) else {
        return ExecutionOutcome::refused(refusal, execution.answer);
    };
    metrics::code_run(runtime.as_str(), report.completion.outcome, Duration::ZERO);
    let none = CallsMade::default();
    report.note_calls(&none);
    if let Ok(CodeStorage { records, .. }) = &server.services.storage {
        let language = server.language_or_default(execution.language);
        let run = new_run(server, context, execution, language, runtime.as_str());
        let event = (refusal.is_policy_block())
            .then(|| SecurityEvent::new(EventKind::PolicyBlock, refusal.to_string()));
        let (records, id, finished) = (
            records.clone(),
            server.id.clone(),
            report.completion.clone(),
        );
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
