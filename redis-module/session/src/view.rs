//! What callers are told of a record and its bindings: owned snapshots, made at one moment.
//!
//! Invariant: a view says `orphaned` exactly when the owner is dead or the claim's lease has lapsed. A rebind by
//! anybody is then let through, unless a living owner's own claim lapsed: that one is the owner's to renew.

use std::collections::BTreeMap;

use crate::context::Context;
use crate::names::{
    ContentHash, InstanceName, LabelName, LabelValue, Principal, Reason, ServerName, SessionId,
    UpstreamSession, WorkerId,
};
use crate::record::{Binding, Phase, Record, SessionState};
use crate::time::{Millis, Timestamp};

/// What a binding is at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BindingState {
    /// An attempt is initializing it.
    Claimed,
    /// In use.
    Bound,
    /// Its owner is dead, or its claim's lease lapsed: whoever needs it rebinds it.
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

    /// The word of the contract.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Claimed => "claimed",
            Self::Bound => "bound",
            Self::Orphaned => "orphaned",
        }
    }
}

/// One binding, as told to callers. Its token is the holder's secret and is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BindingView {
    /// Which server's calls it carries.
    pub server: ServerName,
    /// What it is now.
    pub state: BindingState,
    /// The instance its calls go to.
    pub instance: InstanceName,
    /// The session id the upstream gave.
    pub upstream_session: Option<UpstreamSession>,
    /// The worker that holds its connection, if only one can.
    pub owner: Option<OwnerView>,
    /// The worker that last bound it, or was last seen driving it.
    pub driver: WorkerId,
    /// Its fence.
    pub epoch: u64,
    /// When this epoch began.
    pub bound_at: Timestamp,
    /// When the claim lapses, while there is one.
    pub lease_until: Option<Timestamp>,
    /// How often it was moved.
    pub rebinds: u64,
    /// Why it was last moved.
    pub last_reason: Option<Reason>,
}

/// The worker that holds a binding's connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerView {
    /// Who.
    pub worker: WorkerId,
    /// Whether its last beat still holds.
    pub alive: bool,
    /// Where its peers reach it, if it is known.
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

/// One record, as told to callers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordView {
    /// The session's id.
    pub id: SessionId,
    /// Its incarnation.
    pub generation: u64,
    /// Who owns it.
    pub principal: Principal,
    /// What it is now.
    pub state: SessionState,
    /// When this incarnation began.
    pub created_at: Timestamp,
    /// The last use that was written.
    pub last_used_at: Timestamp,
    /// When it expires if it is not used, see [`crate::record::SessionLifetime::expiry_told`]; for an ended one, when it ended.
    pub expires_at: Timestamp,
    /// How long it may be idle.
    pub ttl: Millis,
    /// What is mounted, for code sessions.
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
            expires_at: record.lifetime.expiry_told(context.now),
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
