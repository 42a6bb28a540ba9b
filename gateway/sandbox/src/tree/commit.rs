//! Commits the files that a run wrote.
//!
//! Invariant: the session's trees change from one state to the next as a whole. First everything is copied to staging;
//! then the journal appears, which is the commit; then its steps are performed. A process that is killed in between
//! leaves the old state, or one that [`recover`](super::recover) completes.

use std::os::fd::AsFd as _;

use super::commit_error::{Checkpoint, CommitError};
use super::copy::Copier;
use super::existing::measure;
use super::journal::{self, JOURNAL, Journal};
use super::last_turn::{record_turn, refuse_overtaken};
use super::layer::Marks;
use super::open;
use super::plan::{Plan, RefusedEntry};
use super::recover::recover_with;
use super::session::SessionDirectory;
use super::stage::Stager;
use super::staging::Staging;
use super::usage::{TreeUsage, is_empty};
use crate::limits::Limits;
use crate::outcome::Changes;
use crate::paths::Mount;
use crate::thread_time::thread_cpu_time;

/// The result of a commit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommitReport {
    /// Files written.
    pub files: u64,
    /// Created directories.
    pub directories: u64,
    /// Deleted names; a directory with its content counts as one.
    pub deleted: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Entries that were not kept: the first hundred.
    pub refused: Vec<RefusedEntry>,
    /// How many were not kept in all.
    pub refused_total: u64,
    /// Whether a file has exactly the maximum size: a write that hit the limit stops there.
    pub is_file_limit_reached: bool,
    /// The usage of the session's trees.
    pub usage: TreeUsage,
}

/// Commits what a run wrote to its layers or copies. The caller has the session's lock.
///
/// `turn` is the run's turn in the session, if the store assigned one: one lower than the last is refused.
///
/// # Errors
///
/// See [`CommitError`].
pub fn commit(
    session: &SessionDirectory,
    changes: &Changes,
    limits: &Limits,
    turn: Option<u64>,
) -> Result<CommitReport, CommitError> {
    commit_with(session, changes, limits, turn, &mut ())
}

/// [`commit`], with a call after each change.
///
/// # Errors
///
/// See [`CommitError`].
#[doc(hidden)]
pub fn commit_with(
    session: &SessionDirectory,
    changes: &Changes,
    limits: &Limits,
    turn: Option<u64>,
    checkpoint: &mut dyn Checkpoint,
) -> Result<CommitReport, CommitError> {
    recover_with(session, checkpoint)?;
    refuse_overtaken(session, turn)?;
    let before = measure(session)?;
    let is_untouched = |layer| is_empty(open::directory(layer, c"."));
    let plan = if !changes.is_copy
        && is_untouched(changes.scratch.as_fd())
        && is_untouched(changes.results.as_fd())
    {
        Plan::default()
    } else {
        let staging =
            Staging::begin(session).map_err(CommitError::system("make a staging directory"))?;
        checkpoint.reached();
        match stage_and_write_journal(
            session,
            changes,
            (limits, before),
            turn,
            &staging,
            checkpoint,
        ) {
            Ok(plan) => plan,
            Err(error) => {
                // If this fails, the next process that opens the session discards it.
                let _ = staging.discard(session);
                return Err(error);
            }
        }
    };
    if plan.is_empty() {
        // Without changes there is nothing to fence, so that a full disk fails no run that only reads.
        let _ = record_turn(session, turn, checkpoint);
    }
    recover_with(session, checkpoint)?;
    let usage = before.minus(plan.removed).plus(plan.staged);
    Ok(CommitReport {
        files: plan.files,
        directories: plan.directories,
        deleted: plan.deleted,
        bytes: plan.staged.bytes,
        refused: plan.refused,
        refused_total: plan.refused_total,
        is_file_limit_reached: plan.is_file_limit_reached,
        usage,
    })
}

fn stage_and_write_journal(
    session: &SessionDirectory,
    changes: &Changes,
    (limits, before): (&Limits, TreeUsage),
    turn: Option<u64>,
    staging: &Staging,
    checkpoint: &mut dyn Checkpoint,
) -> Result<Plan, CommitError> {
    let ceiling = before.ceiling(limits);
    let mut stager = Stager {
        limits,
        marks: if changes.is_copy {
            Marks::None
        } else {
            Marks::Overlay
        },
        ceiling,
        staging: staging.directory(),
        plan: Plan::default(),
        copier: Copier::new(),
        checkpoint,
        looks_left: looks(ceiling),
        cpu_until: thread_cpu_time().saturating_add(limits.cpu_time),
    };
    let layers = [
        (Mount::Scratch, &changes.scratch, session.scratch()),
        (Mount::Results, &changes.results, session.results()),
    ];
    for (mount, layer, lower) in layers {
        if changes.is_copy {
            stager.replace(layer.as_fd(), mount, lower)?;
        } else {
            stager.merge(layer.as_fd(), mount, lower)?;
        }
    }
    let mut plan = std::mem::take(&mut stager.plan);
    before
        .minus(plan.removed)
        .plus(plan.staged)
        .within(ceiling)?;
    if !plan.is_empty() {
        let steps = std::mem::take(&mut plan.steps);
        let journal = Journal::new(staging.name().to_owned(), steps, turn);
        journal::prepare(session.host(), JOURNAL, &journal)
            .map_err(CommitError::system("write the journal"))?;
        checkpoint.reached();
        journal::settle(session.host(), JOURNAL)
            .map_err(CommitError::system("place the journal"))?;
        checkpoint.reached();
    }
    Ok(plan)
}

/// Most entries of a layer that are examined: a layer also contains deletions and refused entries, but no honest one
/// has many more than the trees may contain.
pub(super) fn looks(ceiling: TreeUsage) -> u64 {
    ceiling.inodes.saturating_mul(4).saturating_add(1024)
}
