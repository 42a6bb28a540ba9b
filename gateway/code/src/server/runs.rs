//! One run: the session's turn and lock, a run slot, the bridge for its calls, the sandbox, and the commit of what the run
//! wrote.
//!
//! The thread that starts a run stays with it until its commit, even if the caller disconnects.
//!
//! Invariant: what a run wrote is committed under the lock under which its lower layers were mounted, with the number of
//! its turn, so that a run that was overtaken changes nothing.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use mooring_sandbox::tree::{self, CommitError, SessionDirectory};
use mooring_sandbox::{
    HelperStart, Job, Limits, ListenerCallback, Network, Output, Program, Sandbox, StopHandle,
    Usage,
};
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::code_server::{CallContext, CodeServer};
use super::failure::Failure;
use super::long_output::{self, SavedOutput};
use super::run::{CompletedRun, Run, RunResult, WrittenFiles};
use super::session::{LockedSession, ResolvedSession};
use super::tokens;
use crate::bridge::{self, Bridge, BridgeLimits, BridgeSummary};
use crate::calls::Callee;
use crate::catalog::CatalogNeed;
use crate::proxy::{Proxy, RefusedRequest};
use crate::records::{NewRun, Recording, RunCompletion, RunId};
use crate::tokens::{ArgumentTokenizer, Tokenizer};
use mooring_metrics::{self as metrics, LockUse, RunOutcome, SandboxHelper};
use mooring_settings::{AnswerForm, NetworkPolicy};

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
            Ok((ran, served, refused_requests)) => {
                metrics::sandbox_start(ran.helper, ran.usage.start_time);
                if let Some(Ok(committed)) = &ran.committed {
                    metrics::code_files_refused(committed.refused_total);
                }
                log_uncommitted(&ran, known.digest());
                Ok(CompletedRun {
                    session: Arc::clone(&known.session.digest),
                    ran,
                    served,
                    refused_requests,
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
    ) -> Result<(RunResult, BridgeSummary, Vec<RefusedRequest>), Failure> {
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
        let (stop, stopping) =
            stop_handle(self.services.stopping.clone()).map_err(Failure::Stop)?;
        let callee = self.callee(context, known, &run, tokenizer.clone());
        let callee = ArgumentTokenizer {
            tokenizer: tokenizer.clone(),
            below: recording.callee(callee),
        };
        let (bridge, program_end) = self.bridge(&run, callee)?.unzip();
        let (proxy, network) = self.network().unzip();
        let network = network.unwrap_or_default();
        let ran = spawn_blocking(move || {
            let _held = (slot, stopping);
            let descriptors = (program_end, network);
            run_held(
                &sandbox,
                &stop,
                held,
                run,
                descriptors,
                tokenizer.as_deref(),
            )
        })
        .await;
        // Its calls end with it, whatever came of it.
        let served = match bridge {
            Some(bridge) => bridge.end().await,
            None => BridgeSummary::default(),
        };
        let refused_requests = match proxy {
            Some(proxy) => proxy.end().await.refused,
            None => Vec::new(),
        };
        Ok((ran??, served, refused_requests))
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
    fn network(&self) -> Option<(Proxy, Network)> {
        let NetworkPolicy::PublicHttp { connections_max } = self.policy.network else {
            return None;
        };
        let (proxy, give) = Proxy::prepare(Arc::clone(&self.services.addresses), connections_max);
        Some((proxy, Network::Proxy(ListenerCallback::new(give))))
    }
}

/// A handle that is asked to stop when the process is, also where it is stopping already. It is watched for as long as
/// the second value lives.
fn stop_handle(stopping: CancellationToken) -> io::Result<(StopHandle, AbortOnDropHandle<()>)> {
    let stop = StopHandle::new()?;
    let asked = stop.clone();
    let watching = tokio::spawn(async move {
        stopping.cancelled().await;
        asked.ask();
    });
    Ok((stop, AbortOnDropHandle::new(watching)))
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
    let job = Job {
        program: run.program,
        trees: held.opened.view.try_clone().map_err(Failure::Stop)?,
        limits: run.limits.clone(),
        bridge,
        network,
    };
    let outcome = sandbox.run(job, stop).map_err(Failure::Run);
    let mut committing = Usage::default();
    let ran = outcome.map(|outcome| RunResult {
        committed: (run.files == WrittenFiles::Kept).then(|| {
            let turn = held.turn.number;
            committing.charge(|| {
                tree::commit(&held.opened.directory, &outcome.changes, &run.limits, turn)
            })
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

fn log_uncommitted(ran: &RunResult, session: &str) {
    match &ran.committed {
        None | Some(Ok(_) | Err(CommitError::OverLimit { .. })) => {}
        Some(Err(error)) => {
            tracing::warn!(session, %error, "files of a run not committed");
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    #[tokio::test]
    async fn runs_are_stopped_with_the_process_also_those_that_begin_later() {
        let stopping = CancellationToken::new();
        let (earlier, watched) = stop_handle(stopping.clone()).unwrap();
        let (ended, watching) = stop_handle(stopping.clone()).unwrap();
        drop(watching);
        assert!(!earlier.is_asked());
        stopping.cancel();
        let (later, watched_too) = stop_handle(stopping).unwrap();
        watched.await.unwrap();
        watched_too.await.unwrap();
        assert!(earlier.is_asked() && later.is_asked());
        assert!(!ended.is_asked(), "a run that has ended is not watched");
    }
}
