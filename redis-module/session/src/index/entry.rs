//! What an index keeps of one record: its place in every order, and nothing that only the record needs.
//!
//! Invariant: an entry is small (see the test), because there is one for every session.

use smallvec::SmallVec;

use super::interner::Symbol;
use crate::codec::BorrowedRecord;
use crate::record::{Lifecycle, Phase, SessionLifetime, SessionState};
use crate::time::Timestamp;

/// One session.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) key: Box<[u8]>,
    pub(super) bindings: SmallVec<[BoundTo; 1]>,
    pub(super) created_at: Timestamp,
    pub(super) expires_at: Timestamp,
    /// When the lease of a cleanup or of a claim lapses: until then no other worker may clean up.
    pub(super) leased_until: Timestamp,
    pub(super) used: UseRank,
    /// Its principal, under its prefix.
    pub(super) principal: Symbol,
    /// As of the frontier of the index, which follows the clock; see `expiry`.
    pub(super) state: SessionState,
    pub(super) content: Content,
    pub(super) expiry: ExpiryEvent,
    /// The last sweep that saw the record.
    pub(super) sweep: Sweep,
}

/// The names in a record, each with a reference to it.
pub(super) struct EntryNames {
    pub(super) principal: Symbol,
    pub(super) bindings: SmallVec<[BoundTo; 1]>,
}

/// One binding of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BoundTo {
    /// Server and instance.
    pub(super) place: Symbol,
    /// The worker that drove it last.
    pub(super) driver: Symbol,
    /// The worker that alone can drive it.
    pub(super) owner: Option<Symbol>,
}

/// Whether content is mounted for the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    None,
    Mounted,
}

/// Whether the session's expiry will be reported: not if the index never saw it active.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExpiryEvent {
    None,
    Pending,
}

/// The number of a sweep. It wraps.
pub(super) type Sweep = u8;

/// A place in the order of use: the millisecond of the use, and its number within that millisecond.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct UseRank(u64);

impl UseRank {
    /// Bits for the uses of one millisecond. The rest holds milliseconds until the year 2109.
    const NUMBER_BITS: u32 = 22;
    pub(super) const FIRST: Self = Self(0);
    pub(super) const LAST: Self = Self(u64::MAX);
    const LAST_MS: u64 = u64::MAX >> Self::NUMBER_BITS;

    /// The first place of a millisecond.
    pub(super) const fn at(moment: Timestamp) -> Self {
        let ms = moment.unix_ms();
        let ms = if ms < Self::LAST_MS {
            ms
        } else {
            Self::LAST_MS
        };
        Self(ms << Self::NUMBER_BITS)
    }

    /// The next place.
    pub(super) const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl Entry {
    /// An entry of the record, without its lifetime: [`note`](Self::note) sets that.
    pub(super) fn new(key: &[u8], names: EntryNames, record: &BorrowedRecord<'_>) -> Self {
        let mut entry = Self {
            key: key.into(),
            bindings: names.bindings,
            created_at: Timestamp::default(),
            expires_at: Timestamp::default(),
            leased_until: Timestamp::default(),
            used: UseRank::default(),
            principal: names.principal,
            state: SessionState::Active,
            content: Content::None,
            expiry: ExpiryEvent::None,
            sweep: 0,
        };
        entry.describe(record);
        entry
    }

    /// The state of the record at `now`, regardless of the frontier.
    pub(super) fn state_at(&self, now: Timestamp) -> SessionState {
        match self.state {
            SessionState::Ended => SessionState::Ended,
            SessionState::Active | SessionState::Expired if now >= self.expires_at => {
                SessionState::Expired
            }
            SessionState::Active | SessionState::Expired => SessionState::Active,
        }
    }

    /// Whether there is something to clean up once it is a tombstone.
    pub(super) fn holds_something(&self) -> bool {
        self.content == Content::Mounted || !self.bindings.is_empty()
    }

    /// Whether another entry of the same key adds the same to every counter.
    pub(super) fn counts_as(&self, other: &Self) -> bool {
        self.state == other.state
            && self.principal == other.principal
            && self.bindings == other.bindings
    }

    /// A copy without its key, for comparison.
    pub(super) fn without_key(&self) -> Self {
        Self {
            key: Box::default(),
            bindings: self.bindings.clone(),
            ..*self
        }
    }

    /// Copies everything from a record but its names and its lifetime.
    pub(super) fn describe(&mut self, record: &BorrowedRecord<'_>) {
        self.created_at = record.lifetime.created_at;
        self.leased_until = leased_until(record);
        self.content = match record.identity.content_hash {
            Some(_) => Content::Mounted,
            None => Content::None,
        };
    }

    /// Copies the lifetime. The frontier decides whether an active session has expired.
    pub(super) fn note(
        &mut self,
        lifetime: &SessionLifetime,
        used: UseRank,
        sweep: Sweep,
        now: Timestamp,
    ) {
        self.used = self.used.max(used);
        self.sweep = sweep;
        self.expires_at = lifetime.expires_at;
        self.state = match lifetime.lifecycle {
            Lifecycle::Ended => SessionState::Ended,
            Lifecycle::Active => SessionState::Active,
        };
        self.expiry = match lifetime.state(now) {
            SessionState::Active => ExpiryEvent::Pending,
            SessionState::Expired => self.expiry,
            SessionState::Ended => ExpiryEvent::None,
        };
    }
}

/// The end of the last lease that keeps others from cleaning up the record.
fn leased_until(record: &BorrowedRecord<'_>) -> Timestamp {
    let claims = record
        .bindings
        .iter()
        .filter_map(|binding| match binding.head.phase {
            Phase::Claimed { lease_until } => Some(lease_until),
            Phase::Bound => None,
        });
    let cleaning = record.cleaning.as_ref().map(|lease| lease.lease_until);
    claims.chain(cleaning).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_small() {
        assert_eq!(size_of::<Entry>(), 80);
        assert_eq!(size_of::<Option<Entry>>(), 80);
    }

    #[test]
    fn ranks_follow_milliseconds_and_then_numbers() {
        let first = UseRank::at(Timestamp::from_unix_ms(5));
        let later = UseRank::at(Timestamp::from_unix_ms(6));
        assert!(first < first.next() && first.next() < later);
        let far = UseRank::at(Timestamp::from_unix_ms(u64::MAX));
        assert!(far >= UseRank::at(Timestamp::from_unix_ms(u64::MAX - 1)) && later < far);
    }
}
