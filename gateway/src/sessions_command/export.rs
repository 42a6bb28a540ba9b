//! `mooring sessions export`

use std::path::Path;

use super::agent_records::AgentRecords;
use super::outcome::{Outcome, SessionsError};
use super::target::StoreTarget;
use crate::cli::OwnerArguments;
use mooring_agent::session_file;

/// Selects stdout.
const STANDARD_OUTPUT: &str = "-";

pub(super) async fn run(
    target: &StoreTarget,
    arguments: &OwnerArguments,
    file: &Path,
) -> Result<Outcome, SessionsError> {
    let owner = target.owner(arguments)?;
    let store = target.open().await?;
    let entries = AgentRecords::new(&store, &owner)?.all().await?;
    if file == Path::new(STANDARD_OUTPUT) {
        return Ok(Outcome::printed(session_file::text(&entries)));
    }
    session_file::write(file, &entries)?;
    Ok(Outcome::printed(format!(
        "{} sessions exported\n",
        entries.len()
    )))
}
