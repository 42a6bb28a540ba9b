//! What is shown of a session.
//!
//! Invariant: the id of a client's session and upstream session ids are secrets, of which only digests are shown.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use super::select::StoredSession;
use crate::words::{SessionKind, SessionStatus};
use mooring_secrets::digest;
use mooring_session::view::BindingView;
use mooring_store::{Family, SessionKey, rfc3339};

/// A session in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SessionSummary {
    /// Its digest, as in logs: 16 hexadecimal digits.
    pub session: String,
    /// What it is a session of.
    pub kind: SessionKind,
    /// Server, user and language or parent; none for a client's session, whose key is secret.
    pub place: Option<String>,
    /// Its owner.
    pub principal: String,
    /// Whether it can be used.
    pub state: SessionStatus,
    /// When this generation of it began (RFC 3339).
    pub created_at: String,
    /// The last use that was written (RFC 3339).
    pub last_used_at: String,
    /// When it expires unless it is used, or when it ended (RFC 3339).
    pub expires_at: String,
    /// How long it may be idle, in seconds.
    pub ttl_seconds: u64,
    /// The servers that it is bound to.
    pub servers: Vec<String>,
}

/// All that the store tells of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SessionDetail {
    /// As in a list.
    #[serde(flatten)]
    pub summary: SessionSummary,
    /// What another gateway needs to continue it.
    pub labels: BTreeMap<String, String>,
    /// Where its calls go, by server.
    pub bindings: Vec<BindingDetail>,
    /// The session, its turns and what happens next, in sentences for people; empty if the store's user may not ask for
    /// them.
    pub explanation: Vec<String>,
}

/// The part of a session at one server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct BindingDetail {
    /// The server.
    pub server: String,
    /// `claimed` while it is initialized, `bound`, or `orphaned` if its owner is dead.
    pub state: String,
    /// The instance that its calls go to.
    pub instance: String,
    /// The digest of the upstream session, after a `#`.
    pub upstream_session: Option<String>,
    /// The gateway that has the connection, if only one can.
    pub owner: Option<BindingOwner>,
    /// The gateway that used it last.
    pub driver: String,
    /// It grows with every change of owner or instance.
    pub epoch: u64,
    /// When this epoch began (RFC 3339).
    pub bound_at: String,
    /// How often it was moved.
    pub rebinds: u64,
    /// Why it was last moved.
    pub last_reason: Option<String>,
}

/// The gateway that has a binding's connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct BindingOwner {
    /// Its id.
    pub worker: String,
    /// Whether it is alive.
    pub alive: bool,
}

/// How the session of a command-line agent is shown. People resume it by hand, which needs its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentSessionId {
    /// As a digest, like every other.
    Digest,
    /// Whole: to who may read the store itself.
    Whole,
}

impl SessionSummary {
    /// What a list shows of this session.
    #[must_use]
    pub fn of(found: &StoredSession) -> Self {
        let StoredSession { key, record } = found;
        let servers = record.bindings.iter();
        Self {
            session: key.digest().into(),
            kind: key.family().into(),
            place: place(key).map(str::to_owned),
            principal: record.principal.as_str().to_owned(),
            state: record.state.into(),
            created_at: rfc3339(record.created_at.unix_ms()),
            last_used_at: rfc3339(record.last_used_at.unix_ms()),
            expires_at: rfc3339(record.expires_at.unix_ms()),
            ttl_seconds: record.ttl.get() / 1_000,
            servers: servers.map(|one| one.server.as_str().to_owned()).collect(),
        }
    }
}

impl SessionDetail {
    /// All of this session, with the store's explanation of it.
    #[must_use]
    pub fn of(found: &StoredSession, agent_id: AgentSessionId, explanation: Vec<String>) -> Self {
        let (family, record) = (found.key.family(), &found.record);
        let labels = record.labels.iter();
        let bindings = record.bindings.iter();
        Self {
            summary: SessionSummary::of(found),
            labels: labels
                .map(|(name, value)| (name.as_str().to_owned(), value.as_str().to_owned()))
                .collect(),
            bindings: bindings
                .map(|binding| BindingDetail::of(family, binding, agent_id))
                .collect(),
            explanation,
        }
    }
}

impl BindingDetail {
    fn of(family: Family, binding: &BindingView, agent_id: AgentSessionId) -> Self {
        let upstream_session = binding.upstream_session.as_ref();
        let upstream_session = upstream_session.map(|id| match (family, agent_id) {
            (Family::Agent, AgentSessionId::Whole) => id.as_str().to_owned(),
            _ => format!("#{}", digest::short(id.as_str())),
        });
        let owner = binding.owner.as_ref().map(|owner| BindingOwner {
            worker: owner.worker.to_string(),
            alive: owner.alive,
        });
        Self {
            server: binding.server.as_str().to_owned(),
            state: binding.state.as_str().to_owned(),
            instance: binding.instance.as_str().to_owned(),
            upstream_session,
            owner,
            driver: binding.driver.to_string(),
            epoch: binding.epoch,
            bound_at: rfc3339(binding.bound_at.unix_ms()),
            rebinds: binding.rebinds,
            last_reason: (binding.last_reason.as_ref()).map(|reason| reason.as_str().to_owned()),
        }
    }
}

fn place(key: &SessionKey) -> Option<&str> {
    (key.family() != Family::Mcp).then(|| key.place())
}
