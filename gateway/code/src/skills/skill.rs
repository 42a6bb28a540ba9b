//! One version of a skill.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use strum::{Display, EnumString, VariantNames};

use super::scope::Scope;
use mooring_settings::Language;
use mooring_store::rfc3339;

/// Where a version is.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Display, EnumString, VariantNames,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum SkillStatus {
    /// It waits for approval.
    Pending,
    /// It may be mounted.
    Approved,
    /// It was not approved. For good.
    Rejected,
    /// It was approved once, and is not any more. For good.
    Revoked,
}

/// One version of a skill, without its source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skill {
    /// Its id, by which it is revoked.
    pub id: String,
    /// The name by which code imports it.
    pub name: String,
    /// From 1, for each name of a server.
    pub version: u32,
    /// `python` or `typescript`.
    pub language: String,
    /// The principals that may see it.
    pub scope: Scope,
    /// Where it is.
    pub status: SkillStatus,
    /// The description of its purpose.
    pub(crate) description: String,
    /// The length of its source.
    pub(crate) source_bytes: usize,
    /// SHA-256 of its source, in hexadecimal digits.
    pub(crate) source_hash: String,
    /// Its author.
    pub owner_email: String,
    /// When, in milliseconds since 1970.
    pub created_at_ms: u64,
    /// The id by which it is approved or rejected; none where no approval is required.
    pub approval_id: Option<String>,
    /// Until when it may be approved.
    pub approval_expires_at_ms: Option<u64>,
    /// The user who approved or rejected it; none if no approval is required.
    pub decided_by: Option<String>,
    /// When it was approved or rejected.
    pub decided_at_ms: Option<u64>,
    /// Why it was rejected.
    pub rejection_reason: Option<String>,
    /// The user who revoked it.
    pub(crate) revoked_by: Option<String>,
    /// When.
    pub(crate) revoked_at_ms: Option<u64>,
}

impl Skill {
    /// The extension of a file with its source.
    pub(crate) fn extension(&self) -> &'static str {
        match Language::parse(&self.language) {
            Some(Language::TypeScript) => "ts",
            Some(Language::Python) | None => "py",
        }
    }

    /// Where its source is, in the area of its server.
    pub(super) fn path(&self) -> (String, String) {
        let file = format!("{}.{}", self.version, self.extension());
        (self.name.clone(), file)
    }

    /// Whether it waits for an approval that can no longer be given.
    pub fn is_expired(&self, now_ms: u64) -> bool {
        self.status == SkillStatus::Pending
            && self
                .approval_expires_at_ms
                .is_none_or(|until_ms| now_ms >= until_ms)
    }

    /// As lists have it. `is_active`: it is the version that those who see it have mounted.
    pub fn to_json(&self, server: &str, is_active: bool, now_ms: u64) -> Value {
        let at = |ms: Option<u64>| ms.map(rfc3339);
        let team = match &self.scope {
            Scope::Team(id) => Some(id),
            Scope::Server | Scope::User(_) => None,
        };
        // What is revoked was approved before.
        let is_approved = matches!(self.status, SkillStatus::Approved | SkillStatus::Revoked);
        json!({
            "id": self.id,
            "server_id": server,
            "name": self.name,
            "version": self.version,
            "language": self.language,
            "scope": self.scope.to_string(),
            "team_id": team,
            "owner_email": self.owner_email,
            "description": self.description,
            "status": self.status,
            "is_active": is_active,
            "source_bytes": self.source_bytes,
            "source_hash": self.source_hash,
            "created_at": rfc3339(self.created_at_ms),
            "approval_id": self.approval_id,
            "approval_expires_at": at(self.approval_expires_at_ms),
            "approval_expired": self.is_expired(now_ms),
            "approved_by": self.decided_by.as_ref().filter(|_| is_approved),
            "approved_at": at(self.decided_at_ms.filter(|_| is_approved)),
            "rejected_by": self.decided_by.as_ref().filter(|_| !is_approved),
            "rejection_reason": self.rejection_reason,
            "revoked_by": self.revoked_by,
            "revoked_at": at(self.revoked_at_ms),
        })
    }
}
