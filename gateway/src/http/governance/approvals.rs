//! Approvals: pending and decided ones.

use axum::extract::Request;
use axum::response::Response;
use http::StatusCode;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::blocking::blocking;
use super::context::GovernanceContext;
use super::skills::{self, EmptyBody};
use crate::http::reply::json_value;
use crate::http::rest::{Problem, QueryParameter, read_body};
use mooring_code::server::GovernedServer;
use mooring_code::skills::{ChangeError, Skill, SkillStatus};
use mooring_settings::Right;
use mooring_store::{rfc3339, unix_now_ms};

/// The status of an approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ApprovalStatus {
    Pending,
    Expired,
    Approved,
    Rejected,
}

impl ApprovalStatus {
    const ALL: [Self; 4] = [Self::Pending, Self::Expired, Self::Approved, Self::Rejected];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Expired => "expired",
            Self::Approved => "approved",
            Self::Rejected => "rejected",
        }
    }

    fn of(skill: &Skill, now_ms: u64) -> Self {
        match skill.status {
            SkillStatus::Pending if skill.is_expired(now_ms) => Self::Expired,
            SkillStatus::Pending => Self::Pending,
            // A revoked version was approved before.
            SkillStatus::Approved | SkillStatus::Revoked => Self::Approved,
            SkillStatus::Rejected => Self::Rejected,
        }
    }
}

/// The reason for a rejection.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RejectionBody {
    #[serde(default)]
    reason: String,
}

/// The parameters of a list.
pub(super) const LIST_QUERY: [QueryParameter; 1] = [QueryParameter::new(
    "status",
    "`pending`, `expired`, `approved` or `rejected`",
)];

/// `GET /servers/{id}/skills/approvals`: all of them for approvers, otherwise those of the caller's own skills.
pub(super) async fn list(context: GovernanceContext) -> Result<Response, Problem> {
    let query = context.query(&LIST_QUERY)?;
    let words = ApprovalStatus::ALL.map(ApprovalStatus::as_str).join(", ");
    let parse = |word: &str| ApprovalStatus::ALL.into_iter().find(|s| s.as_str() == word);
    let status = query.read("status", &format!("one of {words}"), parse)?;
    let all = skills::all_versions(&context.governed()?).await?;
    let now_ms = unix_now_ms();
    let mine = |skill: &Skill| skill.owner_email == context.identity.principal.as_str();
    let is_visible = skills::visibility_filter(&context);
    let approvals: Vec<Value> = all
        .iter()
        .filter(|skill| is_visible(skill))
        .filter(|skill| context.may(Right::SkillsApprove) || mine(skill))
        .filter_map(|skill| approval_json(skill, status, now_ms))
        .collect();
    Ok(json_value(StatusCode::OK, &json!({"approvals": approvals})))
}

/// None if the skill needed no approval, or has a status other than the requested one.
fn approval_json(skill: &Skill, status: Option<ApprovalStatus>, now_ms: u64) -> Option<Value> {
    let id = skill.approval_id.as_ref()?;
    let standing = ApprovalStatus::of(skill, now_ms);
    status.is_none_or(|status| status == standing).then(|| {
        json!({
            "id": id,
            "skill_id": skill.id,
            "name": skill.name,
            "version": skill.version,
            "language": skill.language,
            "scope": skill.scope.to_string(),
            "status": standing.as_str(),
            "requested_by": skill.owner_email,
            "requested_at": rfc3339(skill.created_at_ms),
            "expires_at": skill.approval_expires_at_ms.map(rfc3339),
            "decided_by": skill.decided_by,
            "decided_at": skill.decided_at_ms.map(rfc3339),
            "rejection_reason": skill.rejection_reason,
        })
    })
}

/// `POST /servers/{id}/skills/approvals/{approval}/approve`
pub(super) async fn approve(
    context: GovernanceContext,
    request: Request,
) -> Result<Response, Problem> {
    let approval = visible_approval(&context).await?;
    let EmptyBody {} = read_body(&context.app, &context.identity, request).await?;
    let decided = approval.decide(&context, ApprovalDecision::Approve).await?;
    Ok(json_value(StatusCode::OK, &decided))
}

/// `POST /servers/{id}/skills/approvals/{approval}/reject`
pub(super) async fn reject(
    context: GovernanceContext,
    request: Request,
) -> Result<Response, Problem> {
    let approval = visible_approval(&context).await?;
    let RejectionBody { reason } = read_body(&context.app, &context.identity, request).await?;
    let decision = ApprovalDecision::Reject { reason };
    let decided = approval.decide(&context, decision).await?;
    Ok(json_value(StatusCode::OK, &decided))
}

/// An approval that its caller may decide about.
pub(in crate::http) struct DecidableApproval {
    governed: GovernedServer,
    id: String,
    /// The caller.
    by: String,
}

/// What an approver decides.
pub(in crate::http) enum ApprovalDecision {
    Approve,
    Reject { reason: String },
}

impl DecidableApproval {
    /// Decides, and returns the approval as it is then.
    pub(in crate::http) async fn decide(
        self,
        context: &GovernanceContext,
        decision: ApprovalDecision,
    ) -> Result<Value, Problem> {
        let act = match &decision {
            ApprovalDecision::Approve => "skills.approve",
            ApprovalDecision::Reject { .. } => "skills.reject",
        };
        let decided = self.apply(decision).await;
        context.audit(act, &decided);
        decided
    }

    async fn apply(self, decision: ApprovalDecision) -> Result<Value, Problem> {
        let Self { governed, id, by } = self;
        let decide = move || {
            let GovernedServer { server, skills, .. } = &governed;
            Ok::<_, Problem>(match decision {
                ApprovalDecision::Approve => skills.approve(server, &id, &by),
                ApprovalDecision::Reject { reason } => skills.reject(server, &id, &by, &reason),
            })
        };
        match blocking(decide).await? {
            Ok(skill) => Ok(approval_json(&skill, None, unix_now_ms()).unwrap_or(Value::Null)),
            Err(ChangeError::NoSkill) => Err(Problem::no_approval()),
            Err(error) => Err(error.into()),
        }
    }
}

/// The approval in the path, if the caller may decide about it.
pub(in crate::http) async fn visible_approval(
    context: &GovernanceContext,
) -> Result<DecidableApproval, Problem> {
    context.query(&[])?;
    context.require(Right::SkillsApprove)?;
    let id = context.path_id();
    let governed = context.governed()?;
    let all = skills::all_versions(&governed).await?;
    let found = all
        .iter()
        .find(|skill| skill.approval_id.as_deref() == Some(id));
    let is_visible = skills::visibility_filter(context);
    match found.filter(|skill| is_visible(skill)) {
        Some(_) => Ok(DecidableApproval {
            governed,
            id: id.to_owned(),
            by: context.identity.principal.as_str().to_owned(),
        }),
        None => Err(Problem::no_approval()),
    }
}
