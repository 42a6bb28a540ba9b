//! The index of a server's skills: what each is, and what became of it.
//!
//! Invariant: an index is never changed. A new one is written beside it, and `.revision` is renamed to name it.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::SkillsError;
use super::skill::Skill;
use crate::volume::Area;

/// The file that names the index that counts.
const REVISION: &str = ".revision";
/// The prefix of the names of indexes.
const INDEX_PREFIX: &str = ".index.";
/// ... and end with.
const INDEX_SUFFIX: &str = ".json";
/// The newest version this gateway reads; it is the one it writes.
const VERSION: u32 = 1;
/// Most bytes of an index.
pub(super) const BYTES_MAX: usize = 32 * 1024 * 1024;
/// Most bytes of what names it.
const REVISION_BYTES_MAX: usize = 32;
/// How often an index is looked for again that a newer one has just replaced.
const LOOKS_MAX: usize = 100;

/// All skills of a server at one revision.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct SkillIndex {
    pub(super) version: u32,
    /// Counts changes; zero where there never was one.
    pub(super) revision: u64,
    /// Every version of every skill, in the order in which they were made.
    pub(super) skills: Vec<Skill>,
    /// The highest version of each name that there ever was.
    pub(super) versions: BTreeMap<String, u32>,
}

impl SkillIndex {
    fn empty() -> Self {
        Self {
            version: VERSION,
            revision: 0,
            skills: Vec::new(),
            versions: BTreeMap::new(),
        }
    }
}

/// The index that counts, or `known` where it is that one.
pub(super) fn load(
    area: &Area,
    known: Option<Arc<SkillIndex>>,
) -> Result<Arc<SkillIndex>, SkillsError> {
    for _ in 0..LOOKS_MAX {
        let revision = revision(area)?;
        if let Some(known) = known.as_ref().filter(|known| known.revision == revision) {
            return Ok(Arc::clone(known));
        }
        if revision == 0 {
            return Ok(Arc::new(SkillIndex::empty()));
        }
        let bytes = area
            .read(&name(revision), BYTES_MAX)
            .map_err(SkillsError::Read)?;
        // Else it was replaced between the two looks, more than once.
        if let Some(bytes) = bytes {
            return parse(&bytes, revision).map(Arc::new);
        }
    }
    Err(SkillsError::Unreadable)
}

fn parse(bytes: &[u8], revision: u64) -> Result<SkillIndex, SkillsError> {
    let index: SkillIndex = serde_json::from_slice(bytes).map_err(|_| SkillsError::Unreadable)?;
    if index.version > VERSION || index.revision != revision {
        return Err(SkillsError::Unreadable);
    }
    Ok(index)
}

fn revision(area: &Area) -> Result<u64, SkillsError> {
    let bytes = area
        .read(REVISION, REVISION_BYTES_MAX)
        .map_err(SkillsError::Read)?;
    let Some(bytes) = bytes else { return Ok(0) };
    std::str::from_utf8(&bytes)
        .ok()
        .and_then(|text| text.trim_end().parse().ok())
        .ok_or(SkillsError::Unreadable)
}

/// Makes this index the one that counts. The caller holds the lock, and has loaded the one before.
pub(super) fn commit(area: &Area, index: &SkillIndex) -> io::Result<()> {
    let bytes = serde_json::to_vec(index)?;
    if bytes.len() > BYTES_MAX {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    // What a killed process left under this name never counted.
    area.replace("", &name(index.revision), &bytes)?;
    area.replace("", REVISION, format!("{}\n", index.revision).as_bytes())
}

/// Removes the indexes that no reader can still be on its way to, as well as it can.
pub(super) fn remove_old(area: &Area, revision: u64) {
    for other in area.names("").unwrap_or_default() {
        let number = other
            .strip_prefix(INDEX_PREFIX)
            .and_then(|rest| rest.strip_suffix(INDEX_SUFFIX))
            .and_then(|number| number.parse::<u64>().ok());
        // The one before stays for those who have just read its number.
        if number.is_some_and(|number| number.saturating_add(1) < revision) {
            let _ = area.remove(&other);
        }
    }
}

fn name(revision: u64) -> String {
    format!("{INDEX_PREFIX}{revision}{INDEX_SUFFIX}")
}
