//! What a code server keeps for people to look at.

use mooring_session::names::ServerName;

use super::CodeServer;
use super::failure::Failure;
use crate::code::patterns::Patterns;
use crate::code::records::Records;
use crate::code::skills::Skills;
use crate::settings::Language;
use crate::settings::SkillScope;

/// What people may look at and decide about at one code server.
#[derive(Clone, Debug)]
pub(crate) struct Governed {
    /// The server's id.
    pub(crate) server: ServerName,
    /// Its runs and security events.
    pub(crate) records: Records,
    /// Its skills.
    pub(crate) skills: Skills,
    /// Whose skills it has; none for everybody's who may use it.
    pub(crate) skills_scope: Option<SkillScope>,
    /// Whether a new skill waits for somebody to approve it.
    pub(crate) requires_approval: bool,
    /// What the source of a skill is looked through for.
    pub(crate) patterns: Patterns,
    /// What a skill is written in that does not say.
    pub(crate) language: Language,
}

impl CodeServer {
    /// What people may look at.
    ///
    /// # Errors
    /// The volume cannot be used.
    pub(crate) fn governed(&self) -> Result<Governed, Failure> {
        let kept = self.services.kept()?;
        Ok(Governed {
            server: self.id.clone(),
            records: kept.records.clone(),
            skills: kept.skills.clone(),
            skills_scope: self.skills.scope.clone(),
            requires_approval: self.skills.require_approval,
            patterns: self.patterns().clone(),
            language: self.policy.language,
        })
    }
}
