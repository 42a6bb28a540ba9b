//! The skills that one principal has mounted at `/skills`.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::index::SkillIndex;
use super::scope::Viewer;
use super::skill::{Skill, SkillStatus};
use super::{SOURCE_BYTES_MAX, SkillsError};
use crate::volume::Area;
use mooring_secrets::digest;

/// The latest approved version of each name that a principal may see, sorted by name.
#[derive(Clone, Debug)]
pub(crate) struct SkillSet {
    area: Area,
    index: Arc<SkillIndex>,
    /// Where they are in the index.
    positions: Vec<usize>,
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
    pub(super) fn of(area: Area, index: Arc<SkillIndex>, viewer: &Viewer) -> Self {
        let mut latest: BTreeMap<&str, (usize, &Skill)> = BTreeMap::new();
        for (position, skill) in index.skills.iter().enumerate() {
            if skill.status != SkillStatus::Approved || !viewer.sees(&skill.scope) {
                continue;
            }
            let best = latest.entry(&skill.name).or_insert((position, skill));
            if skill.version > best.1.version {
                *best = (position, skill);
            }
        }
        let mut material = String::new();
        for (_, skill) in latest.values() {
            // None of these has a space or a line's end in it.
            material.push_str(&format!(
                "{} {} {} {}\n",
                skill.name, skill.version, skill.language, skill.source_hash
            ));
        }
        Self {
            digest: digest::hex(material.as_bytes()),
            positions: latest.into_values().map(|(position, _)| position).collect(),
            area,
            index,
        }
    }

    /// The skills, without their sources.
    #[cfg(test)]
    pub(crate) fn skills(&self) -> Vec<&Skill> {
        self.each().collect()
    }

    /// Changes with every change of what is mounted, and with nothing else: sets with the same digest give the same
    /// files.
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
        self.each().map(with_source).collect()
    }

    fn each(&self) -> impl Iterator<Item = &Skill> {
        let skill = |position: &usize| self.index.skills.get(*position);
        self.positions.iter().filter_map(skill)
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
