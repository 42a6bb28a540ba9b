//! One run: the session's turn and lock, a run slot, the bridge for its calls, the sandbox, and the commit of what the run
//! wrote.
//!
//! The thread that starts a run stays with it until its commit, even if the caller disconnects.
//!
//! Invariant: what a run wrote is committed under the lock under which its lower layers were mounted, with the number of
//! its turn, so that a run that was overtaken changes nothing.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use mooring_sandbox::tree::{self, CommitError, CommitReport, SessionDirectory, View};
use mooring_sandbox::{
    HelperStart, Job, Layer, Limits, ListenerCallback, Network, Outcome, Output, Program,
    RefusedCall, RunEnd, RunLimit, Sandbox, SessionTrees, StopHandle, Tier, Usage,
};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, spawn_blocking};

use super::failure::Failure;
use super::long_output::{self, SavedOutput};
use super::nested::CallTarget;
use super::session::{LockedSession, ResolvedSession};
use super::tokens::ArgumentTokenizer;
use super::{CallContext, CodeServer, tokens};
use crate::bridge::{self, Bridge, BridgeLimits, BridgeSummary};
use crate::calls::Callee;
use crate::calls::LostStates;
use crate::catalog::CatalogNeed;
use crate::proxy::{Proxy, ProxyOptions, REPORTED_MAX};
use crate::records::{
    EventKind, NewRun, Recording, RunCompletion, RunEvents, RunId, SecurityEvent,
};
use crate::tokens::Tokenizer;
use mooring_metrics::{self as metrics, LockUse, RunOutcome, SandboxHelper};
use mooring_settings::{AnswerForm, Language, NetworkPolicy};

/// A run to execute.
pub(super) struct Run {
    /// Selects the session: each language has its own.
    pub(super) language: Language,
    /// What runs.
    pub(super) program: Program,
    /// Its limits.
    pub(super) limits: Limits,
    /// How it is recorded. The session is filled in here.
    pub(super) record: NewRun,
    /// Answers the calls that its code makes.
    pub(super) calls: CallTarget,
    /// The servers that have lost the session's state, as reported by its calls.
    pub(super) lost: LostStates,
    /// Whether the files that it writes are kept.
    pub(super) files: WrittenFiles,
    /// How much its answer will have of its output.
    pub(super) answer: AnswerForm,
}

/// Whether the files that a run writes are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WrittenFiles {
    /// They are the session's from then on.
    Kept,
    /// They are dropped: the run only repeats what was.
    Dropped,
}

/// The result of a run in the sandbox, with the commit of its files.
pub(super) struct RunResult {
    pub(super) ended: RunEnd,
    pub(super) stdout: Output,
    pub(super) stderr: Output,
    pub(super) usage: Usage,
    /// When its helper was started.
    pub(super) helper: SandboxHelper,
    pub(super) tier: Tier,
    pub(super) layers: Vec<Layer>,
    /// Limits at which the kernel refused something.
    pub(super) limits_reached: Vec<RunLimit>,
    /// The system calls that it was refused.
    pub(super) refused_calls: Vec<RefusedCall>,
    /// The result of the commit of its files; none if nothing was to be committed.
    pub(super) committed: Option<Result<CommitReport, CommitError>>,
    /// Where its output is, where that is too long for its answer.
    pub(super) saved_stdout: Option<SavedOutput>,
    /// The same of its error output.
    pub(super) saved_stderr: Option<SavedOutput>,
}

/// A run that has ended; its record is still open.
pub(super) struct CompletedRun {
    pub(super) ran: RunResult,
    /// The summary of its bridge.
    pub(super) served: BridgeSummary,
    pub(super) recording: Recording,
}

impl CodeServer {
    /// Runs it, and keeps what it wrote.
    pub(super) async fn run(
        &self,
        context: &CallContext,
        run: Run,
    ) -> Result<CompletedRun, Failure> {
        let sandbox = Arc::clone(self.services.sandbox()?);
        let (language, tools) = (Some(run.language), CatalogNeed::Tools);
        let mut known = self.resolve_session(context, language, tools).await?;
        let recording = {
            let (records, server) = (self.services.storage()?.records.clone(), self.id.clone());
            let record = NewRun {
                session_id: Some(known.session.id.as_str().into()),
                ..run.record.clone()
            };
            // Before anything of the run begins.
            spawn_blocking(move || records.begin(&server, record)).await?
        };
        let result = self
            .run_recorded(context, &mut known, sandbox, run, &recording)
            .await;
        match result {
            Ok((ran, served)) => {
                metrics::sandbox_start(ran.helper, ran.usage.start_time);
                if let Some(Ok(committed)) = &ran.committed {
                    metrics::code_files_refused(committed.refused_total);
                }
                log_uncommitted(&ran, known.digest());
                Ok(CompletedRun {
                    ran,
                    served,
                    recording,
                })
            }
            Err(failure) => {
                failure.log(known.digest());
                let finished = RunCompletion {
                    outcome: RunOutcome::Failed,
                    output: String::new(),
                    error: Some(failure.to_string()),
                    metrics: serde_json::Map::new(),
                };
                spawn_blocking(move || recording.finish(finished)).await?;
                Err(failure)
            }
        }
    }

    async fn run_recorded(
        &self,
        context: &CallContext,
        known: &mut ResolvedSession,
        sandbox: Arc<Sandbox>,
        run: Run,
        recording: &Recording,
    ) -> Result<(RunResult, BridgeSummary), Failure> {
        let slot = self.services.run_slot();
        let (held, slot) = self.lock_session(known, slot).await?;
        let (held, tokenizer) = match self.tokenizer_opening() {
            None => (held, None),
            Some(opening) => {
                spawn_blocking(move || {
                    let tokenizer = opening(&held.opened.directory)?;
                    Ok::<_, Failure>((held, Some(tokenizer)))
                })
                .await??
            }
        };
        let stoppable = self.services.stops.begin().map_err(Failure::Stop)?;
        let callee = self.callee(context, known, &run, tokenizer.clone());
        let callee = ArgumentTokenizer::new(tokenizer.clone(), recording.callee(callee));
        let (bridge, program_end) = self.bridge(&run, callee)?.unzip();
        let (proxy, network) = self.network(recording);
        let ran = spawn_blocking(move || {
            let _slot = slot;
            run_held(
                &sandbox,
                stoppable.stop(),
                held,
                run,
                (program_end, network),
                tokenizer.as_deref(),
            )
        })
        .await;
        // Its calls end with it, whatever came of it.
        let served = match bridge {
            Some(bridge) => bridge.end().await,
            None => BridgeSummary::default(),
        };
        if let Some((proxy, noting)) = proxy {
            proxy.end().await;
            // What it refused is in the record before that ends.
            noting.await?;
        }
        Ok((ran??, served))
    }

    /// The bridge over which the run's code calls tools. None for lines of the shell, which are not code.
    fn bridge(&self, run: &Run, callee: impl Callee) -> Result<Option<(Bridge, OwnedFd)>, Failure> {
        if matches!(run.program, Program::Pipeline { .. }) {
            return Ok(None);
        }
        let policy = &self.policy.calls;
        let limits = BridgeLimits::new(policy.calls_max, policy.at_once_max);
        let (host, program_end) = bridge::pair().map_err(Failure::Stop)?;
        let bridge = bridge::serve(host, Arc::new(callee), limits);
        Ok(Some((bridge, program_end)))
    }

    /// The way out to public addresses, where the policy has one.
    fn network(&self, recording: &Recording) -> (Option<(Proxy, JoinHandle<()>)>, Network) {
        let NetworkPolicy::PublicHttp { connections_max } = self.policy.network else {
            return (None, Network::None);
        };
        let (sender, refusals) = mpsc::channel(usize::from(REPORTED_MAX));
        let options = ProxyOptions {
            policy: Arc::clone(&self.services.addresses),
            connections_max,
            on_refused: Box::new(move |refused| {
                let event = SecurityEvent::new(EventKind::NetworkRefused, refused.to_string());
                // The channel has room for every reported refusal, and is read until the proxy has ended.
                let _ = sender.try_send(event);
            }),
        };
        let (proxy, give) = Proxy::prepare(options);
        let noting = tokio::spawn(note_all(recording.events(), refusals));
        let network = Network::Proxy(ListenerCallback::new(give));
        (Some((proxy, noting)), network)
    }
}

/// Records events as they arrive, until every sender is dropped.
async fn note_all(events: RunEvents, mut received: mpsc::Receiver<SecurityEvent>) {
    while let Some(event) = received.recv().await {
        let events = events.clone();
        // What cannot be recorded is counted there.
        let _ = spawn_blocking(move || events.note(event)).await;
    }
}

/// The part of a run on its own thread.
fn run_held(
    sandbox: &Sandbox,
    stop: &StopHandle,
    held: LockedSession,
    run: Run,
    (bridge, network): (Option<OwnedFd>, Network),
    tokenizer: Option<&Tokenizer>,
) -> Result<RunResult, Failure> {
    let view = &held.opened.view;
    let job = Job {
        program: run.program,
        trees: trees(view).map_err(Failure::Stop)?,
        limits: run.limits.clone(),
        bridge,
        network,
    };
    let outcome = sandbox.run(job, stop).map_err(Failure::Run);
    let mut committing = Usage::default();
    let ran = outcome.map(|outcome| RunResult {
        committed: (run.files == WrittenFiles::Kept).then(|| {
            let turn = held.turn.number;
            committing.charge(|| commit(&held.opened.directory, &outcome, &run.limits, turn))
        }),
        ended: outcome.ended,
        stdout: outcome.stdout,
        stderr: outcome.stderr,
        usage: Usage {
            cpu_time: outcome.usage.cpu_time + committing.cpu_time,
            ..outcome.usage
        },
        helper: match outcome.start {
            HelperStart::Warm => SandboxHelper::Warm,
            HelperStart::Cold => SandboxHelper::Cold,
        },
        tier: outcome.tier,
        layers: outcome.layers,
        limits_reached: outcome.limits_reached,
        refused_calls: outcome.refused_calls,
        saved_stdout: None,
        saved_stderr: None,
    });
    let ran = ran.and_then(|ran| match tokenizer {
        Some(tokenizer) => Ok(tokens::hide(tokenizer, ran)?),
        None => Ok(ran),
    });
    let ran = ran.map(|ran| match run.answer {
        AnswerForm::Brief => {
            with_long_output_saved(ran, &held.opened.directory, &run.record.id, &run.limits)
        }
        AnswerForm::Full => ran,
    });
    held.release(LockUse::Run);
    ran
}

/// Saves what is too long for the answer. A run whose files were not kept was overtaken, or has no room for another.
fn with_long_output_saved(
    mut ran: RunResult,
    session: &SessionDirectory,
    id: &RunId,
    limits: &Limits,
) -> RunResult {
    let save = |stream, output: &Output| {
        long_output::is_long(output).then(|| match &ran.committed {
            Some(Ok(_)) => long_output::save(session, stream, id, output, limits),
            Some(Err(_)) => SavedOutput::not_saved("none of the run's files were kept"),
            None => SavedOutput::not_saved("a replay keeps no files"),
        })
    };
    let (stdout, stderr) = (save("output", &ran.stdout), save("error", &ran.stderr));
    ran.saved_stdout = stdout;
    ran.saved_stderr = stderr;
    ran
}

/// The trees that the run sees.
fn trees(view: &View) -> std::io::Result<SessionTrees> {
    Ok(SessionTrees {
        tools: view.tools.try_clone()?,
        skills: view.skills.try_clone()?,
        scratch: view.scratch.try_clone()?,
        results: view.results.try_clone()?,
    })
}

/// Keeps what the run wrote: in the strict tier layers over the session's trees, in the degraded one whole copies.
fn commit(
    session: &SessionDirectory,
    outcome: &Outcome,
    limits: &Limits,
    turn: Option<u64>,
) -> Result<CommitReport, CommitError> {
    match outcome.tier {
        Tier::Strict => tree::commit(session, &outcome.changes, limits, turn),
        Tier::Degraded => tree::commit_copy(session, &outcome.changes, limits, turn),
    }
}

fn log_uncommitted(ran: &RunResult, session: &str) {
    match &ran.committed {
        None | Some(Ok(_) | Err(CommitError::OverLimit { .. })) => {}
        Some(Err(error)) => {
            tracing::warn!(session, %error, "files of a run not committed");
        }
    }
}
