//! Skills on a real file system, with real processes.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]

mod approving;
mod killed;
mod making;
mod seeing;

use std::path::{Path, PathBuf};

use mooring_session::names::ServerName;
use tempfile::TempDir;

use super::*;
use crate::patterns::Patterns;
use crate::volume::Volume;
use crate::volume::tests::options;
use mooring_settings::Language;

/// Skills of their own.
pub(super) struct Fixture {
    pub(super) skills: Skills,
    pub(super) server: ServerName,
    pub(super) base: PathBuf,
    _directory: TempDir,
}

impl Fixture {
    pub(super) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let base = directory.path().join("base");
        Self {
            skills: skills_at(&base),
            server: server(),
            base,
            _directory: directory,
        }
    }

    pub(super) fn create(&self, new: NewSkill, requires_approval: bool) -> Skill {
        create(&self.skills, new, requires_approval).unwrap()
    }

    /// The names, versions and sources that this viewer has mounted.
    pub(super) fn mounted(&self, viewer: &Viewer) -> Vec<(String, u32, String)> {
        let set = self.skills.visible(&self.server, viewer).unwrap();
        let sources = set.sources().unwrap();
        let of = |skill: SkillSource| (skill.skill.name, skill.skill.version, skill.source);
        sources.into_iter().map(of).collect()
    }

    pub(super) fn versions(&self, viewer: &Viewer) -> Vec<u32> {
        self.mounted(viewer)
            .into_iter()
            .map(|(_, version, _)| version)
            .collect()
    }
}

pub(super) fn server() -> ServerName {
    ServerName::parse(b"sandbox").unwrap()
}

/// As another process has them.
pub(super) fn skills_at(base: &Path) -> Skills {
    Skills::new(Volume::open(options(base)).unwrap())
}

pub(super) fn create(
    skills: &Skills,
    new: NewSkill,
    requires_approval: bool,
) -> Result<Skill, CreateError> {
    let patterns = Patterns::new(None, None).unwrap();
    skills.create(&server(), new, requires_approval, &patterns)
}

pub(super) fn new_skill(name: &str, source: &str) -> NewSkill {
    NewSkill {
        name: name.to_owned(),
        language: Language::Python,
        source: source.to_owned(),
        description: "what it is for".to_owned(),
        scope: Scope::Server,
        author: "ada".to_owned(),
    }
}

pub(super) fn viewer(principal: &str, teams: &[&str]) -> Viewer {
    Viewer {
        principal: principal.to_owned(),
        teams: teams.iter().map(ToString::to_string).collect(),
    }
}
