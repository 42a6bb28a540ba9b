//! Making, approving, rejecting and revoking.
//!
//! Invariant: a source is in place before the index that names it counts. Of two processes that change a server's skills
//! at once, the second sees what the first did.

use std::io;
use std::time::Duration;

use mooring_session::names::ServerName;

use super::index::{self, SkillIndex};
use super::new_skill::{CreateError, NewSkill, check, make_room, version};
use super::skill::{Skill, SkillStatus};
use super::{Skills, SkillsError};
use crate::patterns::Patterns;
use crate::volume::Area;
use mooring_metrics as metrics;
use mooring_store::unix_now_ms;

/// The file locked for every change.
const LOCK: &str = ".lock";
/// Longest wait for it.
const LOCK_WITHIN: Duration = Duration::from_secs(10);
/// Longest reason of a rejection, in characters.
const REASON_CHARS_MAX: usize = 2_000;
/// How long what a killed process was writing is left alone.
const LIES_MS: u64 = 60 * 60 * 1_000;

/// Why nothing became of a decision.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// There is no such skill, or none to be approved.
    #[error("there is no such skill")]
    NoSkill,
    /// It is not so that this could be decided of it.
    #[error("the skill is {0}")]
    Status(SkillStatus),
    /// It waited too long.
    #[error("the skill was not approved in time: make it again")]
    Expired,
    /// The files could not be read or written.
    #[error(transparent)]
    Skills(#[from] SkillsError),
}

impl Skills {
    /// Makes a skill, or a new version of one: approved at once where no approval is required.
    ///
    /// # Errors
    /// See [`CreateError`]; nothing is made then.
    pub fn create(
        &self,
        server: &ServerName,
        new: NewSkill,
        requires_approval: bool,
        patterns: &Patterns,
    ) -> Result<Skill, CreateError> {
        check(&new, patterns)?;
        let skill = self.change(server, |area, index| {
            if !make_room(index, &new) {
                return Err(CreateError::Full);
            }
            let skill = version(index, &new, requires_approval, unix_now_ms());
            let (directory, file) = skill.path();
            // What a killed process left under this version never counted.
            area.replace(&directory, &file, new.source.as_bytes())
                .map_err(SkillsError::Write)?;
            index.versions.insert(skill.name.clone(), skill.version);
            index.skills.push(skill.clone());
            Ok(skill)
        })?;
        metrics::code_skill_changed("created");
        Ok(skill)
    }

    /// Approves the skill that waits for this approval.
    ///
    /// # Errors
    /// See [`ChangeError`]; nothing is changed then.
    pub fn approve(
        &self,
        server: &ServerName,
        approval_id: &str,
        by: &str,
    ) -> Result<Skill, ChangeError> {
        self.decide(server, approval_id, "approved", |skill, now_ms| {
            skill.status = SkillStatus::Approved;
            skill.decided_by = Some(by.to_owned());
            skill.decided_at_ms = Some(now_ms);
        })
    }

    /// Rejects it, for good.
    ///
    /// # Errors
    /// See [`ChangeError`]; nothing is changed then.
    pub fn reject(
        &self,
        server: &ServerName,
        approval_id: &str,
        by: &str,
        reason: &str,
    ) -> Result<Skill, ChangeError> {
        self.decide(server, approval_id, "rejected", |skill, now_ms| {
            skill.status = SkillStatus::Rejected;
            skill.decided_by = Some(by.to_owned());
            skill.decided_at_ms = Some(now_ms);
            skill.rejection_reason = Some(reason.chars().take(REASON_CHARS_MAX).collect());
        })
    }

    /// Revokes an approved version, for good. At the next call of every process it is not mounted any more.
    ///
    /// # Errors
    /// See [`ChangeError`]; nothing is changed then.
    pub fn revoke(&self, server: &ServerName, id: &str, by: &str) -> Result<Skill, ChangeError> {
        let skill = self.change(server, |_, index| {
            let skill = index.skills.iter_mut().find(|skill| skill.id == id);
            let skill = skill.ok_or(ChangeError::NoSkill)?;
            if skill.status != SkillStatus::Approved {
                return Err(ChangeError::Status(skill.status));
            }
            skill.status = SkillStatus::Revoked;
            skill.revoked_by = Some(by.to_owned());
            skill.revoked_at_ms = Some(unix_now_ms());
            Ok(skill.clone())
        })?;
        metrics::code_skill_changed("revoked");
        Ok(skill)
    }

    fn decide(
        &self,
        server: &ServerName,
        approval_id: &str,
        what: &'static str,
        decision: impl FnOnce(&mut Skill, u64),
    ) -> Result<Skill, ChangeError> {
        let skill = self.change(server, |_, index| {
            let waits = |skill: &&mut Skill| skill.approval_id.as_deref() == Some(approval_id);
            let skill = index
                .skills
                .iter_mut()
                .find(waits)
                .ok_or(ChangeError::NoSkill)?;
            let now_ms = unix_now_ms();
            if skill.status != SkillStatus::Pending {
                return Err(ChangeError::Status(skill.status));
            }
            if skill.is_expired(now_ms) {
                return Err(ChangeError::Expired);
            }
            decision(skill, now_ms);
            Ok(skill.clone())
        })?;
        metrics::code_skill_changed(what);
        Ok(skill)
    }

    /// Changes the index under the lock, and makes the new one count.
    fn change<E: From<SkillsError>>(
        &self,
        server: &ServerName,
        change: impl FnOnce(&Area, &mut SkillIndex) -> Result<Skill, E>,
    ) -> Result<Skill, E> {
        let area = self.area(server)?;
        let _lock = area
            .lock(LOCK, LOCK_WITHIN)
            .map_err(|error| match error.kind() {
                io::ErrorKind::WouldBlock => SkillsError::Busy,
                _ => SkillsError::Write(error),
            })?;
        let before = self.index(server, &area)?;
        let mut index = SkillIndex::clone(&before);
        let skill = change(&area, &mut index)?;
        index.revision = index.revision.saturating_add(1);
        index::commit(&area, &index).map_err(SkillsError::Write)?;
        index::remove_old(&area, index.revision);
        // What is left of it goes another time.
        let _ = area.remove_leftovers("", unix_now_ms(), LIES_MS);
        Ok(skill)
    }
}
