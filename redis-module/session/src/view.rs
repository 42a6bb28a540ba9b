//! Records and bindings as returned to callers: owned snapshots of one moment.
//!
//! Invariant: a view says `orphaned` exactly if the owner is dead or the claim's lease has lapsed. Then any worker may
//! rebind, unless the lapsed claim is that of a living owner: only the owner may renew that one.

use std::collections::BTreeMap;

use crate::context::Context;
use crate::names::{
    ContentHash, InstanceName, LabelName, LabelValue, Principal, Reason, ServerName, SessionId,
    UpstreamSession, WorkerId,
};
use crate::record::{Binding, Phase, Record, SessionState};
use crate::time::{Millis, Timestamp};

/// The state of a binding at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BindingState {
    /// An attempt is initializing it.
    Claimed,
    /// In use.
    Bound,
    /// Its owner is dead, or its claim's lease lapsed: the next caller rebinds it.
    Orphaned,
}

impl BindingState {
    /// The state at the context's moment of a binding that is in `phase` since `bound_at`, with `owner`.
    #[must_use]
    pub fn of(
        phase: Phase,
        bound_at: Timestamp,
        owner: Option<&str>,
        context: &Context<'_>,
    ) -> Self {
        match phase {
            Phase::Claimed { .. } if phase.is_claim_live(bound_at, context.now) => Self::Claimed,
            Phase::Claimed { .. } => Self::Orphaned,
            Phase::Bound => match owner {
                Some(owner) if !context.workers.is_alive(owner) => Self::Orphaned,
                _ => Self::Bound,
            },
        }
    }

    /// The word in replies.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Claimed => "claimed",
            Self::Bound => "bound",
            Self::Orphaned => "orphaned",
        }
    }
}

/// One binding, as returned to callers. Its token is a secret of the holder and is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BindingView {
    /// The server.
    pub server: ServerName,
    /// Its current state.
    pub state: BindingState,
    /// The instance its calls go to.
    pub instance: InstanceName,
    /// The session id that the upstream assigned.
    pub upstream_session: Option<UpstreamSession>,
    /// The worker that holds its connection, if only one can.
    pub owner: Option<OwnerView>,
    /// The worker that last bound it, or was last seen driving it.
    pub driver: WorkerId,
    /// Its fencing token.
    pub epoch: u64,
    /// When this epoch began.
    pub bound_at: Timestamp,
    /// When the claim lapses; `None` if it is bound.
    pub lease_until: Option<Timestamp>,
    /// How often it was moved.
    pub rebinds: u64,
    /// Why it was last moved.
    pub last_reason: Option<Reason>,
}

/// The worker that holds a binding's connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerView {
    /// Its id.
    pub worker: WorkerId,
    /// Whether its last beat has not lapsed.
    pub alive: bool,
    /// The address at which its peers reach it, if it is known.
    pub address: Option<Box<str>>,
}

impl BindingView {
    /// The binding at the context's moment.
    #[must_use]
    pub fn of(server: &ServerName, binding: &Binding, context: &Context<'_>) -> Self {
        Self {
            server: server.clone(),
            state: BindingState::of(
                binding.phase,
                binding.bound_at,
                binding.owner.as_deref(),
                context,
            ),
            instance: binding.instance.clone(),
            upstream_session: binding.upstream_session.clone(),
            owner: binding.owner.as_ref().map(|worker| OwnerView {
                alive: context.workers.is_alive(worker),
                address: context.workers.address(worker).map(Into::into),
                worker: worker.clone(),
            }),
            driver: binding.driver.clone(),
            epoch: binding.epoch,
            bound_at: binding.bound_at,
            lease_until: match binding.phase {
                Phase::Claimed { lease_until } => Some(lease_until),
                Phase::Bound => None,
            },
            rebinds: binding.rebinds,
            last_reason: binding.last_reason.clone(),
        }
    }
}

/// One record, as returned to callers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordView {
    /// The session's id.
    pub id: SessionId,
    /// Its generation.
    pub generation: u64,
    /// The owner.
    pub principal: Principal,
    /// Its current state.
    pub state: SessionState,
    /// When this generation began.
    pub created_at: Timestamp,
    /// The last written use.
    pub last_used_at: Timestamp,
    /// When it expires unless it is used, see [`crate::record::SessionLifetime::reported_expiry`]. Of an ended session,
    /// when it ended.
    pub expires_at: Timestamp,
    /// How long it may be idle.
    pub ttl: Millis,
    /// The digest of the mounted content, for code sessions.
    pub content_hash: Option<ContentHash>,
    /// What another worker needs to continue it.
    pub labels: BTreeMap<LabelName, LabelValue>,
    /// Where its calls go.
    pub bindings: Vec<BindingView>,
}

impl RecordView {
    /// The record at the context's moment.
    #[must_use]
    pub fn of(record: &Record, context: &Context<'_>) -> Self {
        Self {
            id: record.id.clone(),
            generation: record.generation,
            principal: record.principal.clone(),
            state: record.lifetime.state(context.now),
            created_at: record.lifetime.created_at,
            last_used_at: record.lifetime.last_used_at,
            expires_at: record.lifetime.reported_expiry(context.now),
            ttl: record.lifetime.ttl,
            content_hash: record.content_hash.clone(),
            labels: record.labels.clone(),
            bindings: bindings_of(record, context),
        }
    }
}

/// All bindings of a record at the context's moment, by server.
#[must_use]
pub fn bindings_of(record: &Record, context: &Context<'_>) -> Vec<BindingView> {
    record
        .bindings
        .iter()
        .map(|(server, binding)| BindingView::of(server, binding, context))
        .collect()
}
