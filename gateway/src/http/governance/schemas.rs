//! The schemas of replies that the records of the code crate write themselves, for the OpenAPI document.
//!
//! Invariant: a schema lists every field of its reply and allows no other; a test compares both with replies of a running
//! gateway.

#![expect(dead_code, reason = "schemas only: their types are written elsewhere")]

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde_json::Value;

/// A run, as lists have it.
#[derive(JsonSchema)]
pub(super) struct RunSummary {
    id: String,
    server_id: String,
    /// The code session; none if the run never came to one.
    session_id: Option<String>,
    user_email: String,
    team_id: Option<String>,
    token_teams: Vec<String>,
    language: String,
    runtime: String,
    /// SHA-256 of the code.
    code_hash: String,
    code_size_bytes: u64,
    /// `running`, `completed`, `failed`, `timed_out`, `blocked`, `killed` or `lost`.
    status: String,
    created_at: String,
    started_at: String,
    finished_at: Option<String>,
    worker: String,
    timeout_ms: Option<u64>,
    replayed_from_run_id: Option<String>,
    replay_mode: Option<String>,
    /// Exit code, times, memory, limits hit and isolation.
    metrics: Option<BTreeMap<String, Value>>,
    tool_calls_made: Vec<ToolCallSummary>,
    tool_calls_total: Option<u64>,
    security_events: Vec<SecurityEventOfRun>,
    security_events_total: Option<u64>,
    bodies_omitted: Option<bool>,
}

/// A run with its code, output and calls.
#[derive(JsonSchema)]
pub(super) struct Run {
    #[serde(flatten)]
    summary: RunSummary,
    /// None if it was not recorded.
    code_body: Option<String>,
    output: String,
    error: Option<String>,
    tool_calls: Vec<ToolCall>,
    tool_calls_complete: bool,
}

/// A call of a tool by a run.
#[derive(JsonSchema)]
pub(super) struct ToolCallSummary {
    name: String,
    started_at: String,
    latency_ms: u64,
    success: bool,
    error: Option<String>,
}

/// A call of a tool by a run, with arguments and result.
#[derive(JsonSchema)]
pub(super) struct ToolCall {
    seq: u64,
    server: String,
    tool: String,
    arguments: Value,
    started_at: String,
    latency_ms: Option<u64>,
    /// `answered`, `failed`, `omitted` or `unended`.
    outcome: String,
    result: Value,
    error: Option<ToolCallError>,
}

/// Why a call failed.
#[derive(JsonSchema)]
pub(super) struct ToolCallError {
    kind: String,
    message: String,
}

/// A security event.
#[derive(JsonSchema)]
pub(super) struct SecurityEventOfRun {
    id: String,
    kind: String,
    message: String,
    server_id: String,
    user_email: String,
    run_id: Option<String>,
    tool: Option<String>,
    call: Option<u64>,
    created_at: String,
}

/// A security event with the current status of its run.
#[derive(JsonSchema)]
pub(super) struct SecurityEvent {
    #[serde(flatten)]
    event: SecurityEventOfRun,
    run_status: Option<String>,
}

/// Security events, newest first.
#[derive(JsonSchema)]
pub(super) struct SecurityEventList {
    events: Vec<SecurityEvent>,
}

/// Runs, newest first.
#[derive(JsonSchema)]
pub(super) struct RunList {
    runs: Vec<RunSummary>,
    /// The `before` of the next page.
    next_before: Option<String>,
}

/// A replay, compared with what was recorded.
#[derive(JsonSchema)]
pub(super) struct ReplayResult {
    replay: ReplayComparison,
    run: RunSummary,
    /// What `shell_exec` answered.
    answer: Value,
}

/// How a replay compares with what was recorded.
#[derive(JsonSchema)]
pub(super) struct ReplayComparison {
    replayed_from_run_id: String,
    mode: String,
    same: bool,
    same_output: bool,
    same_error: bool,
    recorded_status: String,
    status: String,
    divergences: Vec<Value>,
    divergences_total: u64,
    record_complete: bool,
}

/// Sessions of code at this server.
#[derive(JsonSchema)]
pub(super) struct CodeSessionList {
    sessions: Vec<CodeSession>,
    complete: bool,
}

/// A session of code.
#[derive(JsonSchema)]
pub(super) struct CodeSession {
    session_id: String,
    server_id: String,
    user_email: String,
    language: Option<String>,
    created_at: String,
    last_used_at: String,
    expires_at: String,
    content_hash: Option<String>,
}

/// A version of a skill.
#[derive(JsonSchema)]
pub(super) struct SkillVersion {
    id: String,
    server_id: String,
    name: String,
    version: u32,
    language: String,
    scope: String,
    team_id: Option<String>,
    owner_email: String,
    description: String,
    /// `pending`, `approved`, `rejected` or `revoked`.
    status: String,
    /// Whether sessions mount it.
    is_active: bool,
    source_bytes: u64,
    source_hash: String,
    created_at: String,
    approval_id: Option<String>,
    approval_expires_at: Option<String>,
    approval_expired: bool,
    approved_by: Option<String>,
    approved_at: Option<String>,
    rejected_by: Option<String>,
    rejection_reason: Option<String>,
    revoked_by: Option<String>,
    revoked_at: Option<String>,
}

/// A skill with its source and versions.
#[derive(JsonSchema)]
pub(super) struct Skill {
    #[serde(flatten)]
    version: SkillVersion,
    source_code: Option<String>,
    versions: Vec<SkillVersion>,
}

/// Skills and their versions.
#[derive(JsonSchema)]
pub(super) struct SkillList {
    skills: Vec<SkillVersion>,
}

/// The approval of a version of a skill.
#[derive(JsonSchema)]
pub(super) struct Approval {
    id: String,
    skill_id: String,
    name: String,
    version: u32,
    language: String,
    scope: String,
    /// `pending`, `expired`, `approved` or `rejected`.
    status: String,
    requested_by: String,
    requested_at: String,
    expires_at: Option<String>,
    decided_by: Option<String>,
    decided_at: Option<String>,
    rejection_reason: Option<String>,
}

/// Approvals.
#[derive(JsonSchema)]
pub(super) struct ApprovalList {
    approvals: Vec<Approval>,
}
