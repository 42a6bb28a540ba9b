//! One run: the session's turn and lock, a place among the runs of this process, the sandbox, and the commit of what
//! the run wrote.
//!
//! The thread that starts a run stays with it to its end and its commit; a caller that goes away changes nothing.
//!
//! Invariant: what a run wrote is committed under the lock under which its lower layers were mounted, with the number of
//! its turn, so that a run that was overtaken changes nothing.

use std::sync::Arc;

use mooring_sandbox::tree::{self, CommitError, Committed, SessionDirectory, View};
use mooring_sandbox::{
    Ended, Job, Layer, Limits, Outcome, Output, Program, Sandbox, Stop, Tier, Trees, Usage,
};
use mooring_session::names::Principal;
use tokio::task::spawn_blocking;

use super::CodeServer;
use super::failure::Failure;
use super::session::Held;
use crate::code::place::Language;
use crate::metrics::{self, LockUse};

/// What is to be run.
pub(super) struct Run {
    /// Whose session: each language has its own.
    pub(super) language: Language,
    /// What runs.
    pub(super) program: Program,
    /// What it may use.
    pub(super) limits: Limits,
}

/// What came of it.
pub(super) struct Ran {
    pub(super) ended: Ended,
    pub(super) stdout: Output,
    pub(super) stderr: Output,
    pub(super) usage: Usage,
    pub(super) tier: Tier,
    pub(super) layers: Vec<Layer>,
    /// What of its files was kept, or why none was.
    pub(super) committed: Result<Committed, CommitError>,
}

impl CodeServer {
    /// Runs it, and keeps what it wrote.
    pub(super) async fn run(&self, principal: &Principal, run: Run) -> Result<Ran, Failure> {
        let sandbox = Arc::clone(self.services.sandbox()?);
        let mut known = self.know(principal, Some(run.language)).await?;
        let work = async {
            let turn = self.turn(&known).await?;
            let place = self.services.place().await?;
            let held = self.hold(&mut known, turn).await?;
            let stoppable = self.services.stops.begin().map_err(Failure::Stop)?;
            spawn_blocking(move || {
                let _place = place;
                run_held(&sandbox, stoppable.stop(), held, run)
            })
            .await?
        };
        let result = work.await;
        match &result {
            Ok(ran) => {
                metrics::sandbox_start(ran.usage.start_time);
                if let Ok(committed) = &ran.committed {
                    metrics::code_files_refused(committed.refused_total);
                }
                log_uncommitted(ran, known.digest());
            }
            Err(failure) => failure.log(known.digest()),
        }
        result
    }
}

/// What a run does on its own thread.
fn run_held(sandbox: &Sandbox, stop: &Stop, held: Held, run: Run) -> Result<Ran, Failure> {
    let view = &held.opened.view;
    let job = Job {
        program: run.program,
        trees: trees(view).map_err(Failure::Stop)?,
        limits: run.limits.clone(),
    };
    let outcome = sandbox.run(job, stop).map_err(Failure::Run);
    let ran = outcome.map(|outcome| Ran {
        committed: commit(
            &held.opened.directory,
            &outcome,
            &run.limits,
            held.turn.number(),
        ),
        ended: outcome.ended,
        stdout: outcome.stdout,
        stderr: outcome.stderr,
        usage: outcome.usage,
        tier: outcome.tier,
        layers: outcome.layers,
    });
    held.release(LockUse::Run);
    ran
}

/// What the run sees.
fn trees(view: &View) -> std::io::Result<Trees> {
    Ok(Trees {
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
) -> Result<Committed, CommitError> {
    match outcome.tier {
        Tier::Strict => tree::commit(session, &outcome.changes, limits, turn),
        Tier::Degraded => tree::commit_copy(session, &outcome.changes, limits, turn),
    }
}

fn log_uncommitted(ran: &Ran, session: &str) {
    match &ran.committed {
        Ok(_) | Err(CommitError::OverLimit { .. }) => {}
        Err(error) => {
            tracing::warn!(session, %error, "what a run wrote was not kept");
        }
    }
}
