//! Completes or discards the work of a killed commit.

use rustix::fs::Dir;

use super::apply::apply;
use super::commit_error::{Checkpoint, CommitError};
use super::journal::{self, JOURNAL, Journal, TURN};
use super::last_turn::record_turn;
use super::open;
use super::remove::remove;
use super::session::SessionDirectory;
use super::staging::Staging;
use super::usage::is_self_or_parent;
use crate::paths;

/// The result of a recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecoveryOutcome {
    /// There was nothing to recover.
    Nothing,
    /// A commit had not written its journal: its prepared files were discarded, and the old trees remain.
    Dropped,
    /// A commit had written its journal: its steps were completed, and the new trees are in place.
    Completed,
}

/// Completes or discards what a killed commit or write left. Must be called right after taking the session's lock; if
/// nothing was left it costs a few system calls.
///
/// # Errors
///
/// See [`CommitError`]; it can be called again.
pub fn recover(session: &SessionDirectory) -> Result<RecoveryOutcome, CommitError> {
    recover_with(session, &mut ())
}

/// [`recover`], with a call after each change.
pub(super) fn recover_with(
    session: &SessionDirectory,
    checkpoint: &mut dyn Checkpoint,
) -> Result<RecoveryOutcome, CommitError> {
    let journal = journal::load::<Journal>(session.host(), JOURNAL);
    let is_completed = match journal {
        Ok(None) => false,
        Ok(Some(journal))
            if journal.is_known() && paths::checked(journal.staging.as_bytes()).is_ok() =>
        {
            complete(session, journal, checkpoint)?;
            true
        }
        Ok(Some(_)) => return Err(CommitError::UnknownJournal),
        Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
            return Err(CommitError::UnknownJournal);
        }
        // The trees on the disk are used as they are: a session that can never be opened again would be no better.
        Err(error) if journal::is_cut_off(&error) => {
            journal::discard(session.host(), JOURNAL)
                .map_err(CommitError::unfinished("remove the journal"))?;
            false
        }
        Err(error) => return Err(CommitError::system("read the journal")(error)),
    };
    let is_dropped = drop_staging(session, checkpoint)?;
    Ok(match (is_completed, is_dropped) {
        (true, _) => RecoveryOutcome::Completed,
        (false, true) => RecoveryOutcome::Dropped,
        (false, false) => RecoveryOutcome::Nothing,
    })
}

fn complete(
    session: &SessionDirectory,
    journal: Journal,
    checkpoint: &mut dyn Checkpoint,
) -> Result<(), CommitError> {
    let staging = Staging::open(session, journal.staging)
        .map_err(CommitError::unfinished("open a staging directory"))?;
    apply(
        session.root(),
        staging.directory(),
        &journal.steps,
        checkpoint,
    )
    .map_err(CommitError::unfinished("put files in place"))?;
    record_turn(session, journal.turn, checkpoint)?;
    journal::discard(session.host(), JOURNAL)
        .map_err(CommitError::unfinished("remove the journal"))?;
    checkpoint.reached();
    Ok(())
}

/// Removes all staging directories: without a journal none is in use. Returns whether there were any.
fn drop_staging(
    session: &SessionDirectory,
    checkpoint: &mut dyn Checkpoint,
) -> Result<bool, CommitError> {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;

    let step = "drop what was prepared";
    let listing = open::directory(session.staging(), c".")
        .and_then(Dir::new)
        .map_err(CommitError::unfinished(step))?;
    let mut is_dropped = false;
    for entry in listing {
        let entry = entry.map_err(CommitError::unfinished(step))?;
        if is_self_or_parent(entry.file_name()) {
            continue;
        }
        remove(
            session.staging(),
            OsStr::from_bytes(entry.file_name().to_bytes()),
        )
        .map_err(CommitError::unfinished(step))?;
        checkpoint.reached();
        is_dropped = true;
    }
    // Written before a rename that never came.
    for name in [JOURNAL, TURN] {
        journal::discard_prepared(session.host(), name).map_err(CommitError::unfinished(step))?;
    }
    Ok(is_dropped)
}
