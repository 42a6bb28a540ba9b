//! Which scope a server's skills belong to, and whether new ones need approval.

use crate::reader::{Reason, text};
use crate::rows::settings;

settings! {
    /// A server's settings for skills.
    #[derive(Default, Eq)]
    pub struct SkillSettings {
        /// Which scope the server's skills belong to.
        pub scope: Option<SkillScope> = Text("servers.skills_scope", 255,
            "team:<id> or user:<email>, the name at most 250 bytes without control characters", None)
            .unset("those that were made at this server") => text(parse_scope),
        /// Whether a new skill can be used only after approval (right `skills.approve`). Otherwise it can be used at
        /// once.
        pub require_approval: bool = Switch("servers.skills_require_approval", false),
    }
}

/// Whose skills a server has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SkillScope {
    /// A team's, by its id.
    Team(String),
    /// A user's, by the name that requests carry.
    User(String),
}

fn parse_scope(text: &str) -> Result<SkillScope, Reason> {
    match text.split_once(':') {
        _ if text.contains(char::is_control) => Err("it has control characters".to_owned()),
        Some((_, "")) => Err("it has no name".to_owned()),
        Some(("team", id)) => Ok(SkillScope::Team(id.to_owned())),
        Some(("user", name)) => Ok(SkillScope::User(name.to_owned())),
        _ => Err(String::new()),
    }
}
