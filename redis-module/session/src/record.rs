//! What a session is: one record, its lifetime and its bindings.
//!
//! Invariant: expiry is not stored. A record is active, or was ended by a command. Every reader derives expiry from the
//! deadline, so all of them see it at the same moment.

use std::collections::BTreeMap;

use crate::clock::highest_number_followed;
use crate::limits::{CLOCK_BACK_MAX, EMPTY_TOMBSTONE, KEY_OUTLIVES_PARTS, LEASE_MAX};
use crate::names::{
    ContentHash, InstanceName, LabelName, LabelValue, Principal, Reason, ServerName, SessionId,
    Token, UpstreamSession, WorkerId,
};
use crate::time::{Millis, Timestamp};
use crate::tuning::Tuning;

/// The oldest schema version that understands what this module writes.
pub const LEAST_READER: u64 = 1;

/// A session as stored under its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The id the client or the caller knows.
    pub id: SessionId,
    /// The owner.
    pub principal: Principal,
    /// Grows whenever the session is created again under its key.
    pub generation: u64,
    /// The highest epoch any binding of this key ever had.
    pub highest_epoch: u64,
    /// Its state and times.
    pub lifetime: SessionLifetime,
    /// The digest of the mounted content, for code sessions.
    pub content_hash: Option<ContentHash>,
    /// What another worker needs to continue it.
    pub labels: BTreeMap<LabelName, LabelValue>,
    /// Where its calls go, by server.
    pub bindings: BTreeMap<ServerName, Binding>,
    /// Which worker cleans up what it held, once it is a tombstone.
    pub cleaning: Option<Cleaning>,
}

/// The part of a record that every use reads, and the only part that a plain use writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionLifetime {
    /// The oldest schema version that understands the record.
    pub least_reader: u64,
    /// Whether it was ended.
    pub lifecycle: Lifecycle,
    /// When this generation began.
    pub created_at: Timestamp,
    /// The last written use; the last use may be up to one touch step later.
    pub last_used_at: Timestamp,
    /// When an active record expires. Of an ended record, when it ended.
    pub expires_at: Timestamp,
    /// How long it may be idle.
    pub ttl: Millis,
}

/// The stored part of a record's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifecycle {
    /// In use, or expired if its deadline has passed.
    Active,
    /// Ended by a command.
    Ended,
}

/// The state of a record at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionState {
    /// In use.
    Active,
    /// Idle past its TTL.
    Expired,
    /// Ended by a command.
    Ended,
}

impl SessionState {
    /// The word in replies.
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
    /// A lifetime that starts now.
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

    /// The state at `now`.
    #[must_use]
    pub fn state(&self, now: Timestamp) -> SessionState {
        match self.lifecycle {
            Lifecycle::Ended => SessionState::Ended,
            Lifecycle::Active if now >= self.expires_at => SessionState::Expired,
            Lifecycle::Active => SessionState::Active,
        }
    }

    /// Records a use at `now`, and returns whether it has to be written: a new TTL always, a plain use only if one
    /// touch step has passed since the last written one, so that a busy session does not flood the replicas. A record's
    /// time never goes back, even if the wall clock does.
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

    /// The expiry to report to callers: when the session will have been idle for its TTL. Uses that were not written
    /// may keep it up to one touch step longer; from then on, the stored deadline is reported. Of an ended session,
    /// when it ended.
    #[must_use]
    pub fn reported_expiry(&self, now: Timestamp) -> Timestamp {
        let idle_for_ttl = self.last_used_at.plus(self.ttl);
        match self.lifecycle {
            Lifecycle::Active if now < idle_for_ttl => idle_for_ttl,
            Lifecycle::Active | Lifecycle::Ended => self.expires_at,
        }
    }

    /// The expiry to write for a key that has to live until `end`, or `None` if its current expiry `written` is good.
    /// The key may live longer by a part of the TTL, so that few uses write it.
    #[must_use]
    pub fn key_expiry(&self, end: Timestamp, written: Option<Timestamp>) -> Option<Timestamp> {
        let latest = end.plus(self.ttl.divided_by(KEY_OUTLIVES_PARTS));
        let is_good = written.is_some_and(|written| (end..=latest).contains(&written));
        (!is_good).then_some(latest)
    }

    /// When the record's key may be dropped, whatever the record holds: the end of its tombstone.
    #[must_use]
    pub fn tombstone_ends_at(&self, tuning: &Tuning) -> Timestamp {
        let by_ratio = self
            .last_used_at
            .plus(self.ttl.times(tuning.tombstone_ratio));
        by_ratio.max(self.expires_at.plus(tuning.tombstone_min))
    }
}

/// The deadline to store. It is ahead by one touch step, so that a session whose last touches were not written never
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
    /// Whether an attempt is still initializing it.
    pub phase: Phase,
    /// The instance of the upstream server.
    pub instance: InstanceName,
    /// The session id that the upstream assigned.
    pub upstream_session: Option<UpstreamSession>,
    /// The worker that holds its connection, if only one can.
    pub owner: Option<WorkerId>,
    /// The worker that last bound it, or that was driving it when the record was last written for another reason.
    pub driver: WorkerId,
    /// Distinguishes every claim of this binding from every other, as a fencing token. Only grows.
    pub epoch: u64,
    /// When this epoch began.
    pub bound_at: Timestamp,
    /// How often it was moved.
    pub rebinds: u64,
    /// Why it was last moved.
    pub last_reason: Option<Reason>,
    /// The attempt that created this epoch.
    pub token: Token,
    /// The upstream session that this epoch leaves behind. Dropped when the claim is confirmed, or with the next epoch
    /// if there was no claim.
    pub previous: Option<UpstreamSession>,
    /// The instance whose state was lost when this binding was last moved, if no reply has reported that to the client
    /// yet.
    pub unreported_loss: Option<InstanceName>,
}

/// The phase of a binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// One attempt is initializing it, until the lease lapses.
    Claimed {
        /// When the claim may be taken over.
        lease_until: Timestamp,
    },
    /// It is in use.
    Bound,
}

impl Phase {
    /// Whether the claim that began at `bound_at` is live at `now`.
    ///
    /// A claim that begins or ends further in the future than any current clock allows was stamped before the wall
    /// clock stepped back. It does not count as live, or it would block the binding until the clock reaches that time
    /// again.
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

/// Whether a lease that ends at `until` is live at `now`. A lease that ends later than any lease granted now would is
/// not: the wall clock stepped back since.
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

/// A worker's lease on the cleanup of a tombstone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cleaning {
    /// The worker; `None` for the caller of END, which names no worker.
    pub worker: Option<WorkerId>,
    /// When another worker may take over.
    pub lease_until: Timestamp,
}

impl Cleaning {
    /// Whether the lease is live at `now`, so that no other worker may clean up.
    #[must_use]
    pub fn is_live(&self, now: Timestamp) -> bool {
        is_lease_live(self.lease_until, now)
    }
}

impl Record {
    /// When the record's key may be dropped: the end of its tombstone. The tombstone of an ended session that holds
    /// nothing is short.
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

    /// The highest number that this key ever had, which the numbers of a new record must exceed. Zero if it is further
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
