//! Who may do what. Roles are those that the proxy names, called like ContextForge's permissions; `admin` has all of
//! them. Without authentication there is one principal, who may do everything.

use crate::identity::Identity;
use mooring_settings::AuthSettings;

/// The role that may do everything.
const ADMIN: &str = "admin";

/// What not everybody may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GovernanceRight {
    /// See the runs, sessions and events of others.
    ServersRead,
    /// Make skills.
    SkillsCreate,
    /// Approve and reject them.
    SkillsApprove,
    /// Revoke them.
    SkillsRevoke,
}

impl GovernanceRight {
    /// The role that gives it.
    pub(super) const fn role(self) -> &'static str {
        match self {
            Self::ServersRead => "servers.read",
            Self::SkillsCreate => "skills.create",
            Self::SkillsApprove => "skills.approve",
            Self::SkillsRevoke => "skills.revoke",
        }
    }
}

/// Whether it may do everything.
pub(super) fn is_admin(auth: &AuthSettings, identity: &Identity) -> bool {
    matches!(auth, AuthSettings::None) || identity.roles.iter().any(|role| role == ADMIN)
}

/// Whether it may do this.
pub(super) fn may(auth: &AuthSettings, identity: &Identity, right: GovernanceRight) -> bool {
    is_admin(auth, identity) || identity.roles.iter().any(|role| role == right.role())
}
