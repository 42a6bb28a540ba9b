//! What a session is: one record, its lifetime and its bindings.
//!
//! Invariant: expiry is not stored. A record is active, or ended on purpose; that it expired is read from its
//! deadline by whoever looks, so it happens to everybody at the same moment.

use std::collections::BTreeMap;

use crate::clock::highest_number_followed;
use crate::limits::{CLOCK_BACK_MAX, EMPTY_TOMBSTONE, KEY_OUTLIVES_PARTS, LEASE_MAX};
use crate::names::{
    ContentHash, InstanceName, LabelName, LabelValue, Principal, Reason, ServerName, SessionId,
    Token, UpstreamSession, WorkerId,
};
use crate::time::{Millis, Timestamp};
use crate::tuning::Tuning;

/// The oldest schema version that understands what this module writes of its own.
pub const LEAST_READER: u64 = 1;

/// A session as it stands under its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The id the client or the caller knows.
    pub id: SessionId,
    /// Who owns it.
    pub principal: Principal,
    /// The incarnation. Only grows.
    pub generation: u64,
    /// The highest epoch any binding of this key ever had.
    pub highest_epoch: u64,
    /// Its state and times.
    pub lifetime: SessionLifetime,
    /// What is mounted, for code sessions.
    pub content_hash: Option<ContentHash>,
    /// What another worker needs to continue it.
    pub labels: BTreeMap<LabelName, LabelValue>,
    /// Where its calls go, by server.
    pub bindings: BTreeMap<ServerName, Binding>,
    /// Who cleans up what it held, once it is a tombstone.
    pub cleaning: Option<Cleaning>,
}

/// The part of a record that every use reads, and the only part that a mere use writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionLifetime {
    /// The oldest schema version that understands the record.
    pub least_reader: u64,
    /// What was last decided about it.
    pub lifecycle: Lifecycle,
    /// When this incarnation began.
    pub created_at: Timestamp,
    /// The last use that was written; a later one may be up to one touch step ahead of it.
    pub last_used_at: Timestamp,
    /// From this moment on an active record counts as expired. For an ended one, when it ended.
    pub expires_at: Timestamp,
    /// How long it may be idle.
    pub ttl: Millis,
}

/// What is stored of a record's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifecycle {
    /// In use, or expired if its deadline has passed.
    Active,
    /// Ended on purpose.
    Ended,
}

/// What a record's state is at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionState {
    /// In use.
    Active,
    /// Idle past its TTL.
    Expired,
    /// Ended on purpose.
    Ended,
}

impl SessionState {
    /// The word of the contract.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Expired => "expired",
            Self::Ended => "ended",
        }
    }
}

impl SessionLifetime {
    /// A lifetime that begins now.
    #[must_use]
    pub fn begin(now: Timestamp, ttl: Millis, tuning: &Tuning) -> Self {
        Self {
            least_reader: LEAST_READER,
            lifecycle: Lifecycle::Active,
            created_at: now,
            last_used_at: now,
            expires_at: deadline(now, ttl, tuning),
            ttl,
        }
    }

    /// What the record is at `now`.
    #[must_use]
    pub fn state(&self, now: Timestamp) -> SessionState {
        match self.lifecycle {
            Lifecycle::Ended => SessionState::Ended,
            Lifecycle::Active if now >= self.expires_at => SessionState::Expired,
            Lifecycle::Active => SessionState::Active,
        }
    }

    /// Notes a use at `now`, and says whether that has to be written: a new TTL always, a mere use only when one
    /// touch step has passed since the last written one, so that a busy session does not flood the replicas.
    /// Wall clocks step back; a record's time does not.
    pub fn slide(&mut self, now: Timestamp, ttl: Option<Millis>, tuning: &Tuning) -> bool {
        let ttl = ttl.unwrap_or(self.ttl);
        let due = self.last_used_at.plus(step(self.ttl, tuning));
        if ttl == self.ttl && now < due {
            return false;
        }
        let now = now.max(self.last_used_at);
        *self = Self {
            last_used_at: now,
            expires_at: deadline(now, ttl, tuning),
            ttl,
            ..*self
        };
        true
    }

    /// The earliest and the latest moment at which the session may have been used last: a use within one touch step of the
    /// last written one is not written. An end always is.
    #[must_use]
    pub fn last_use_bounds(&self, now: Timestamp, tuning: &Tuning) -> [Timestamp; 2] {
        let written = self.last_used_at;
        let latest = match self.lifecycle {
            Lifecycle::Active => written.plus(step(self.ttl, tuning)).min(now).max(written),
            Lifecycle::Ended => written,
        };
        [written, latest]
    }

    /// When the session expires, as callers are told: once it was idle for its TTL. Uses that were not written may keep
    /// it up to one touch step longer; from then on the stored deadline is told. For an ended one, when it ended.
    #[must_use]
    pub fn expiry_told(&self, now: Timestamp) -> Timestamp {
        let idle_for_ttl = self.last_used_at.plus(self.ttl);
        match self.lifecycle {
            Lifecycle::Active if now < idle_for_ttl => idle_for_ttl,
            Lifecycle::Active | Lifecycle::Ended => self.expires_at,
        }
    }

    /// When a key that is to live until `end` expires, if that is to be written; `written` is when it expires now. It may
    /// live longer by a part of the TTL, so that few uses write it.
    #[must_use]
    pub fn key_expiry(&self, end: Timestamp, written: Option<Timestamp>) -> Option<Timestamp> {
        let latest = end.plus(self.ttl.divided_by(KEY_OUTLIVES_PARTS));
        let is_good = written.is_some_and(|written| (end..=latest).contains(&written));
        (!is_good).then_some(latest)
    }

    /// When the key under which the record stands may be dropped, whatever the record holds: the tombstone's end.
    #[must_use]
    pub fn tombstone_ends_at(&self, tuning: &Tuning) -> Timestamp {
        let by_ratio = self
            .last_used_at
            .plus(self.ttl.times(tuning.tombstone_ratio));
        by_ratio.max(self.expires_at.plus(tuning.tombstone_min))
    }
}

/// The stored deadline is ahead by one touch step, so that a session whose last touches were not written never
/// expires early.
fn deadline(now: Timestamp, ttl: Millis, tuning: &Tuning) -> Timestamp {
    now.plus(ttl).plus(step(ttl, tuning))
}

fn step(ttl: Millis, tuning: &Tuning) -> Millis {
    ttl.divided_by(tuning.touch_step)
}

/// Where the calls of a session to one server go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// Whether somebody still initializes it.
    pub phase: Phase,
    /// The instance it goes to.
    pub instance: InstanceName,
    /// The session id the upstream gave.
    pub upstream_session: Option<UpstreamSession>,
    /// The worker that holds its connection, if only one can.
    pub owner: Option<WorkerId>,
    /// The worker that last bound it, or was last seen driving it when the record was written anyway.
    pub driver: WorkerId,
    /// Fences every claim of this binding from every other. Only grows.
    pub epoch: u64,
    /// When this epoch began.
    pub bound_at: Timestamp,
    /// How often it was moved.
    pub rebinds: u64,
    /// Why it was last moved.
    pub last_reason: Option<Reason>,
    /// The attempt that made this epoch.
    pub token: Token,
    /// The upstream session that this epoch leaves behind; dropped when its claim is confirmed, and where there was
    /// none, with the next epoch.
    pub previous: Option<UpstreamSession>,
    /// The instance whose state was lost when this binding was last moved, where no reply has told the client of that
    /// yet.
    pub unreported_loss: Option<InstanceName>,
}

/// How far a binding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// One attempt initializes it, until the lease lapses.
    Claimed {
        /// When the claim may be taken over.
        lease_until: Timestamp,
    },
    /// It is in use.
    Bound,
}

impl Phase {
    /// Whether an attempt is initializing at `now` what was begun at `bound_at`.
    ///
    /// A claim that begins or ends further ahead than the wall clock could have said at its time was stamped before
    /// the clock stepped back: it is not believed, or it would freeze the binding until the clock is there again.
    #[must_use]
    pub fn is_claim_live(self, bound_at: Timestamp, now: Timestamp) -> bool {
        match self {
            Self::Claimed { lease_until } => {
                bound_at <= now.plus(CLOCK_BACK_MAX) && is_lease_live(lease_until, now)
            }
            Self::Bound => false,
        }
    }
}

/// Whether a lease that ends at `until` runs at `now`. One that ends later than any lease given now would is not
/// believed: the wall clock stepped back since.
fn is_lease_live(until: Timestamp, now: Timestamp) -> bool {
    now < until && until <= now.plus(LEASE_MAX).plus(CLOCK_BACK_MAX)
}

impl Binding {
    /// Whether an attempt is initializing it at `now`.
    #[must_use]
    pub fn is_claim_live(&self, now: Timestamp) -> bool {
        self.phase.is_claim_live(self.bound_at, now)
    }
}

/// A worker's lease on the cleaning of a tombstone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cleaning {
    /// Who cleans; none for the caller of END, which names no worker.
    pub worker: Option<WorkerId>,
    /// When another may take over.
    pub lease_until: Timestamp,
}

impl Cleaning {
    /// Whether the lease runs at `now`, so that nobody else may clean.
    #[must_use]
    pub fn is_live(&self, now: Timestamp) -> bool {
        is_lease_live(self.lease_until, now)
    }
}

impl Record {
    /// When the key under which the record stands may be dropped: the tombstone's end. A session that was ended and holds
    /// nothing has a short one.
    #[must_use]
    pub fn tombstone_ends_at(&self, tuning: &Tuning) -> Timestamp {
        let end = self.lifetime.tombstone_ends_at(tuning);
        let holds_nothing = self.bindings.is_empty() && self.content_hash.is_none();
        match self.lifetime.lifecycle {
            Lifecycle::Ended if holds_nothing => {
                end.min(self.lifetime.expires_at.plus(EMPTY_TOMBSTONE))
            }
            Lifecycle::Active | Lifecycle::Ended => end,
        }
    }

    /// The highest number that this key ever gave, which the numbers of a new record must exceed. Zero if it is further
    /// ahead of the clock than [`NUMBER_AHEAD_MAX`](crate::limits::NUMBER_AHEAD_MAX) (an edited record).
    #[must_use]
    pub fn numbers_to_follow(&self, now: Timestamp) -> u64 {
        numbers_to_follow(self.generation, self.highest_epoch, now)
    }

    /// Whether any of its bindings is being initialized at `now`.
    #[must_use]
    pub fn has_live_claim(&self, now: Timestamp) -> bool {
        self.bindings
            .values()
            .any(|binding| binding.is_claim_live(now))
    }
}

/// [`Record::numbers_to_follow`] of a record with these numbers.
pub(crate) fn numbers_to_follow(generation: u64, highest_epoch: u64, now: Timestamp) -> u64 {
    let highest = generation.max(highest_epoch);
    if highest <= highest_number_followed(now) {
        highest
    } else {
        0
    }
}
