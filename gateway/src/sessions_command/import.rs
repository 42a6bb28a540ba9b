//! `mooring sessions import`
//!
//! Invariant: for each parent the session that was used later stays, and importing a file twice equals importing it
//! once.

use std::path::{Path, PathBuf};

use super::agent_records::{AgentRecords, AgentSessionState, PutOutcome};
use super::outcome::{Outcome, SessionsError};
use super::target::{Owner, StoreTarget};
use crate::cli::OwnerArguments;
use crate::client::table::{printable, shortened};
use mooring_agent::session_file::{self, Entry, ReadError, SessionFileContents};
use mooring_store::unix_now_ms;

/// Selects stdin.
const STANDARD_INPUT: &str = "-";
/// Where claude-code-mcp keeps its sessions, below its user's home directory. It does not look at `XDG_CONFIG_HOME`.
const DEFAULT_FILE: &str = ".config/claude-code-mcp/sessions.json";

/// The policy for a parent that has a session in both the file and the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnKnown {
    /// Keep the one that was used later.
    KeepNewer,
    /// Take the file's.
    Overwrite,
}

/// Numbers of entries by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    created: usize,
    replaced: usize,
    /// The store's own was used later, or is the same.
    kept: usize,
}

/// The file of a command that names none.
///
/// # Errors
/// [`SessionsError::Flag`]: this user has no home directory.
pub(super) fn default_file() -> Result<PathBuf, SessionsError> {
    let home = std::env::home_dir().filter(|home| home.is_absolute());
    home.map(|home| home.join(DEFAULT_FILE)).ok_or_else(|| {
        let text = format!(
            "the home directory, which ~/{DEFAULT_FILE} is in, is not known: name the file"
        );
        SessionsError::Flag(text)
    })
}

pub(super) async fn run(
    target: &StoreTarget,
    arguments: &OwnerArguments,
    file: &Path,
    on_known: OnKnown,
) -> Result<Outcome, SessionsError> {
    let owner = target.owner(arguments)?;
    let now_ms = unix_now_ms();
    let reading = read(file, now_ms, &owner).map_err(|source| SessionsError::Read {
        path: file.to_owned(),
        source,
    })?;
    let store = target.open().await?;
    let records = AgentRecords::new(&store, &owner)?;
    let expired = reading.expired();
    let SessionFileContents {
        mut entries,
        skipped,
    } = reading;
    let mut remarks: Vec<String> = skipped
        .iter()
        .map(|skipped| remark(&skipped.key, &skipped.reason.to_string()))
        .collect();
    // The most recently used come last, so that at the cap they are the ones that stay.
    entries.sort_by_key(|entry| entry.updated_at_ms);
    let mut counts = Counts::default();
    for (taken, entry) in entries.iter().enumerate() {
        let put = import(&records, entry, on_known, now_ms).await;
        let put = put.map_err(|source| SessionsError::Stopped {
            taken,
            of: entries.len(),
            source: Box::new(source),
        })?;
        match put {
            Some(PutOutcome::Created) => counts.created += 1,
            Some(PutOutcome::Replaced) => counts.replaced += 1,
            None | Some(PutOutcome::Overtaken) => counts.kept += 1,
            Some(PutOutcome::NoRoom) => {
                remarks.push(remark(&entry.parent, &no_room(&owner)));
            }
        }
    }
    target.check(&store)?;
    let is_fruitless = counts == Counts::default() && !remarks.is_empty();
    Ok(Outcome {
        text: describe_import(&owner, counts, remarks.len(), expired),
        remarks,
        is_fruitless,
    })
}

fn read(file: &Path, now_ms: u64, owner: &Owner) -> Result<SessionFileContents, ReadError> {
    let ttl = owner.policy.session_ttl;
    if file == Path::new(STANDARD_INPUT) {
        session_file::read_from(std::io::stdin().lock(), now_ms, ttl)
    } else {
        session_file::read(file, now_ms, ttl)
    }
}

/// None if the store's session stays.
async fn import(
    records: &AgentRecords<'_>,
    entry: &Entry,
    on_known: OnKnown,
    now_ms: u64,
) -> Result<Option<PutOutcome>, SessionsError> {
    let known = records.known(&entry.parent).await?;
    let is_newer = match known {
        AgentSessionState::Nothing => false,
        AgentSessionState::Ended { at_ms } => at_ms >= entry.updated_at_ms,
        AgentSessionState::Held { used_at_ms, .. } => used_at_ms >= entry.updated_at_ms,
    };
    if is_newer && on_known == OnKnown::KeepNewer {
        return Ok(None);
    }
    records.put(entry, known, now_ms).await.map(Some)
}

fn no_room(owner: &Owner) -> String {
    format!(
        "there is no room: the principal holds {} sessions, and none of them was used earlier and is idle",
        owner.policy.sessions_max
    )
}

/// A line about a skipped entry.
fn remark(key: &str, reason: &str) -> String {
    format!("skipped \"{}\": {reason}", shortened(key))
}

fn describe_import(owner: &Owner, counts: Counts, skipped: usize, expired: usize) -> String {
    let taken = counts.created + counts.replaced;
    let text = format!(
        "{taken} sessions imported for {} at {}: {} new, {} replaced; {} kept as the store has them, {skipped} skipped, \
         of which {expired} expired\n",
        owner.principal.as_str(),
        owner.server,
        counts.created,
        counts.replaced,
        counts.kept,
    );
    printable(&text)
}
