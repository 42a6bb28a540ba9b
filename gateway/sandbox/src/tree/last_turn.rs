//! The last turn that committed to a session: a gateway that has lost the session comes with a lower one.

use super::commit_error::{Checkpoint, CommitError};
use super::journal::{self, LastTurn, TURN};
use super::session::SessionDirectory;

/// Refuses a turn that is lower than the last one that committed.
pub(super) fn refuse_overtaken(
    session: &SessionDirectory,
    turn: Option<u64>,
) -> Result<(), CommitError> {
    let Some(turn) = turn else { return Ok(()) };
    let last = match journal::load::<LastTurn>(session.host(), TURN) {
        // Truncated by a crash of the machine, it has no value; the next commit rewrites it.
        Err(error) if journal::is_cut_off(&error) => None,
        loaded => loaded.map_err(CommitError::system("read the last turn"))?,
    };
    match last {
        Some(last) if turn < last.turn => Err(CommitError::Overtaken {
            turn,
            last: last.turn,
        }),
        _ => Ok(()),
    }
}

/// Records the last turn that committed.
pub(super) fn record_turn(
    session: &SessionDirectory,
    turn: Option<u64>,
    checkpoint: &mut dyn Checkpoint,
) -> Result<(), CommitError> {
    let Some(turn) = turn else { return Ok(()) };
    journal::prepare(session.host(), TURN, &LastTurn::new(turn))
        .map_err(CommitError::unfinished("write the turn"))?;
    checkpoint.reached();
    journal::settle(session.host(), TURN).map_err(CommitError::unfinished("record the turn"))?;
    checkpoint.reached();
    Ok(())
}
