//! Permissions. The proxy names the caller's roles, which are called like ContextForge's permissions; `admin` includes
//! all of them. Without authentication there is one principal, with all rights.

use crate::identity::Identity;
use mooring_settings::AuthSettings;

/// The role that includes all others.
const ADMIN: &str = "admin";

/// The rights that need a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GovernanceRight {
    /// See the runs, sessions and events of others.
    ServersRead,
    /// Create skills.
    SkillsCreate,
    /// Approve and reject skills.
    SkillsApprove,
    /// Revoke skills.
    SkillsRevoke,
}

impl GovernanceRight {
    /// The role that grants the right.
    pub(super) const fn role(self) -> &'static str {
        match self {
            Self::ServersRead => "servers.read",
            Self::SkillsCreate => "skills.create",
            Self::SkillsApprove => "skills.approve",
            Self::SkillsRevoke => "skills.revoke",
        }
    }
}

/// Whether the caller is an administrator.
pub(super) fn is_admin(auth: &AuthSettings, identity: &Identity) -> bool {
    matches!(auth, AuthSettings::None) || identity.roles.iter().any(|role| role == ADMIN)
}

/// Whether the caller has this right.
pub(super) fn may(auth: &AuthSettings, identity: &Identity, right: GovernanceRight) -> bool {
    is_admin(auth, identity) || identity.roles.iter().any(|role| role == right.role())
}
