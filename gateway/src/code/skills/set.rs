//! What one principal has mounted at `/skills`.

use std::collections::BTreeMap;

use super::index::Index;
use super::scope::Viewer;
use super::skill::{Skill, SkillStatus};
use super::{SOURCE_BYTES_MAX, SkillsError};
use crate::code::volume::Area;
use crate::digest;

/// The latest approved version of each name that a principal may see, sorted by name.
#[derive(Clone, Debug)]
pub(crate) struct SkillSet {
    area: Area,
    skills: Vec<Skill>,
    digest: String,
}

/// One skill with its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SkillSource {
    /// What it is.
    pub(crate) skill: Skill,
    /// Its source.
    pub(crate) source: String,
}

impl SkillSet {
    pub(super) fn of(area: Area, index: &Index, viewer: &Viewer) -> Self {
        let mut latest: BTreeMap<&str, &Skill> = BTreeMap::new();
        let approved = |skill: &&Skill| skill.status == SkillStatus::Approved;
        for skill in index.skills.iter().filter(approved) {
            if !viewer.sees(&skill.scope) {
                continue;
            }
            let best = latest.entry(&skill.name).or_insert(skill);
            if skill.version > best.version {
                *best = skill;
            }
        }
        let skills: Vec<Skill> = latest.into_values().cloned().collect();
        let mut material = String::new();
        for skill in &skills {
            // None of these has a space or a line's end in it.
            material.push_str(&format!(
                "{} {} {} {}\n",
                skill.name, skill.version, skill.language, skill.source_hash
            ));
        }
        Self {
            digest: digest::hex(material.as_bytes()),
            area,
            skills,
        }
    }

    /// The skills, without their sources.
    #[cfg(test)]
    pub(crate) fn skills(&self) -> &[Skill] {
        &self.skills
    }

    /// Changes with every change of what is mounted, and with nothing else: what was made of a set with this digest is
    /// good for every other one.
    pub(crate) fn digest(&self) -> &str {
        &self.digest
    }

    /// The skills with their sources, which are read now.
    ///
    /// # Errors
    /// One could not be read.
    pub(crate) fn sources(&self) -> Result<Vec<SkillSource>, SkillsError> {
        let with_source = |skill: &Skill| {
            Ok(SkillSource {
                source: source(&self.area, skill)?,
                skill: skill.clone(),
            })
        };
        self.skills.iter().map(with_source).collect()
    }
}

/// The source of a version, which has to be the one that was stored.
pub(super) fn source(area: &Area, skill: &Skill) -> Result<String, SkillsError> {
    let (directory, file) = skill.path();
    let bytes = area
        .read(&format!("{directory}/{file}"), SOURCE_BYTES_MAX)
        .map_err(SkillsError::Read)?
        .ok_or(SkillsError::Unreadable)?;
    if digest::hex(&bytes) != skill.source_hash {
        return Err(SkillsError::Unreadable);
    }
    String::from_utf8(bytes).map_err(|_| SkillsError::Unreadable)
}
