//! The data of a code server for the governance API.

use mooring_session::names::ServerName;

use super::code_server::CodeServer;
use super::failure::Failure;
use crate::patterns::Patterns;
use crate::records::Records;
use crate::skills::Skills;
use mooring_settings::{Language, SkillScope};

/// The part of one code server that the governance API reads and changes.
#[derive(Clone, Debug)]
pub struct GovernedServer {
    /// The server's id.
    pub server: ServerName,
    /// Its runs and security events.
    pub records: Records,
    /// Its skills.
    pub skills: Skills,
    /// The scope of its skills; none for all users of the server.
    pub skills_scope: Option<SkillScope>,
    /// Whether a new skill requires approval.
    pub requires_approval: bool,
    /// The patterns for which the source of a skill is checked.
    pub patterns: Patterns,
    /// The default language of a skill.
    pub language: Language,
}

impl CodeServer {
    /// What people may look at.
    ///
    /// # Errors
    /// The volume cannot be used.
    pub fn governed(&self) -> Result<GovernedServer, Failure> {
        let kept = self.services.storage()?;
        Ok(GovernedServer {
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
