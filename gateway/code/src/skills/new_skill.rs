//! A skill to be made: what it must be, and whether there is room for it.

use super::index::SkillIndex;
use super::scope::Scope;
use super::skill::{Skill, SkillStatus};
use super::{DESCRIPTION_CHARS_MAX, SOURCE_BYTES_MAX, SkillsError};
use crate::patterns::{PatternMatch, Patterns};
use crate::records::RunId;
use mooring_secrets::digest;
use mooring_settings::Language;
use mooring_stubs::is_python_keyword;

/// Longest name, in bytes: with its extension it is the name of a file, which has at most 255.
const NAME_BYTES_MAX: usize = 251;

/// How long a new skill may wait for its approval.
const APPROVAL_LASTS_MS: u64 = 30 * 24 * 60 * 60 * 1_000;
/// Most versions of all skills of one server.
const VERSIONS_MAX: usize = 4_096;
/// Most names that there ever were at one server.
const NAMES_MAX: usize = 1_024;
/// Most bytes of sources that are pending or approved at one server.
const SOURCES_BYTES_MAX: usize = 64 * 1024 * 1024;

/// A skill to be made.
#[derive(Clone, Debug)]
pub struct NewSkill {
    /// The name by which code imports it; an existing name gets a new version.
    pub name: String,
    /// The language of its source.
    pub language: Language,
    /// Its source.
    pub source: String,
    /// The description of its purpose.
    pub description: String,
    /// The principals that may see it.
    pub scope: Scope,
    /// Its author.
    pub author: String,
}

/// Why a skill was not made.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// It is no identifier that both languages can import.
    #[error(
        "the name of a skill is an identifier: ASCII letters, digits and underscores, beginning with a letter, at most {NAME_BYTES_MAX} of them"
    )]
    Name,
    /// It is a word of the language.
    #[error("a word of the language cannot be the name of a skill")]
    Keyword,
    /// Its source is empty, too long, or has a NUL in it.
    #[error("the source of a skill is text of 1 to {SOURCE_BYTES_MAX} bytes without NUL")]
    Source,
    /// Its description is too long.
    #[error("the description of a skill has at most {DESCRIPTION_CHARS_MAX} characters")]
    Description,
    /// Its source has a pattern of dangerous code.
    #[error("{0}")]
    Blocked(PatternMatch),
    /// The server has as many skills as it may.
    #[error("skill limit of this server reached: revoke some skills")]
    Full,
    /// The files could not be read or written.
    #[error(transparent)]
    Skills(#[from] SkillsError),
}

pub(super) fn check(new: &NewSkill, patterns: &Patterns) -> Result<(), CreateError> {
    check_name(&new.name, new.language)?;
    let length = new.source.len();
    if length == 0 || length > SOURCE_BYTES_MAX || new.source.contains('\0') {
        return Err(CreateError::Source);
    }
    if new.description.chars().count() > DESCRIPTION_CHARS_MAX {
        return Err(CreateError::Description);
    }
    patterns
        .check(new.language, &new.source)
        .map(drop)
        .map_err(CreateError::Blocked)
}

/// Whether a skill of this language may have the name. A leading underscore is the gateway's own.
fn check_name(name: &str, language: Language) -> Result<(), CreateError> {
    let is_identifier = name.starts_with(|first: char| first.is_ascii_alphabetic())
        && name.len() <= NAME_BYTES_MAX
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if !is_identifier {
        return Err(CreateError::Name);
    }
    if language == Language::Python && is_python_keyword(name) {
        return Err(CreateError::Keyword);
    }
    Ok(())
}

/// Whether there is room for one more: what was rejected or revoked makes way, the oldest first.
pub(super) fn make_room(index: &mut SkillIndex, new: &NewSkill) -> bool {
    let is_live =
        |skill: &Skill| matches!(skill.status, SkillStatus::Pending | SkillStatus::Approved);
    while index.skills.len() >= VERSIONS_MAX {
        let Some(oldest) = index.skills.iter().position(|skill| !is_live(skill)) else {
            return false;
        };
        index.skills.remove(oldest);
    }
    let live = index.skills.iter().filter(|skill| is_live(skill));
    let bytes: usize = live.map(|skill| skill.source_bytes).sum();
    let is_new_name = !index.versions.contains_key(&new.name);
    bytes.saturating_add(new.source.len()) <= SOURCES_BYTES_MAX
        && !(is_new_name && index.versions.len() >= NAMES_MAX)
}

pub(super) fn version(
    index: &SkillIndex,
    new: &NewSkill,
    requires_approval: bool,
    now_ms: u64,
) -> Skill {
    let last = index.versions.get(&new.name).copied().unwrap_or_default();
    let approval_id = requires_approval.then(|| RunId::new().as_str().to_owned());
    Skill {
        id: RunId::new().as_str().to_owned(),
        name: new.name.clone(),
        version: last.saturating_add(1),
        language: new.language.as_str().to_owned(),
        scope: new.scope.clone(),
        status: if requires_approval {
            SkillStatus::Pending
        } else {
            SkillStatus::Approved
        },
        description: new.description.clone(),
        source_bytes: new.source.len(),
        source_hash: digest::hex(new.source.as_bytes()),
        owner_email: new.author.clone(),
        created_at_ms: now_ms,
        approval_expires_at_ms: approval_id
            .as_ref()
            .map(|_| now_ms.saturating_add(APPROVAL_LASTS_MS)),
        decided_at_ms: (!requires_approval).then_some(now_ms),
        approval_id,
        decided_by: None,
        rejection_reason: None,
        revoked_by: None,
        revoked_at_ms: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let long = "x".repeat(NAME_BYTES_MAX);
        for name in ["a", "csv_report2", "X", "classy", &long] {
            assert!(check_name(name, Language::Python).is_ok(), "{name}");
        }
        let too_long = "x".repeat(NAME_BYTES_MAX + 1);
        for name in [
            "", "_a", "2a", "a-b", "a.b", "../a", "ä", "a b", "a\n", &too_long,
        ] {
            let checked = check_name(name, Language::Python);
            assert!(matches!(checked, Err(CreateError::Name)), "{name}");
        }
        let keyword = check_name("class", Language::Python);
        assert!(matches!(keyword, Err(CreateError::Keyword)));
        assert!(check_name("lambda", Language::TypeScript).is_ok());
    }
}
