//! The rule for a session directory when it is opened, without I/O: keep, adopt, replace or refuse it.
//!
//! Invariant: a session that has ended gets a new directory; one whose record was lost, or that was used while the store
//! was away, is adopted. No file of a session that has not ended is lost.

use super::stamp::Stamp;

/// The session's incarnation in the store, or that the store was away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Incarnation {
    /// The store has a record of it.
    Recorded {
        /// The record's generation.
        generation: u64,
        /// When the record's incarnation began, by the store's clock, in milliseconds since 1970.
        created_at_ms: u64,
        /// Whether the key was empty when the incarnation began; otherwise the session before it had ended.
        is_new_key: bool,
        /// The generation that an earlier attempt was refused by ([`SessionOpenError::Superseded`]), where the record was read
        /// again after that: then the record is right, and the directory is an earlier store's.
        ///
        /// [`SessionOpenError::Superseded`]: super::SessionOpenError::Superseded
        outranks: Option<u64>,
    },
    /// The store is away: the directory alone says what the session is.
    StoreAway,
}

impl Incarnation {
    /// Whether the session is used without the store knowing.
    pub(super) const fn is_away(self) -> bool {
        matches!(self, Self::StoreAway)
    }
}

/// The decision about a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// It is this incarnation's.
    Keep,
    /// It becomes this incarnation's, with its files.
    Adopt,
    /// It belongs to a session that has ended: it goes to the trash.
    BeginAnew,
    /// It is that of a later incarnation than the caller knows of.
    Superseded,
}

/// Decides about a directory that has a stamp. `ttl_ms` is how long a session may be idle.
pub(super) fn decide(
    stamp: &Stamp,
    incarnation: Incarnation,
    now_ms: u64,
    ttl_ms: u64,
) -> Decision {
    let is_idle = now_ms.saturating_sub(stamp.used_at_ms) >= ttl_ms;
    let Incarnation::Recorded {
        generation,
        created_at_ms,
        is_new_key,
        outranks,
    } = incarnation
    else {
        return if is_idle {
            Decision::BeginAnew
        } else {
            Decision::Keep
        };
    };
    if stamp.generation == generation {
        return Decision::Keep;
    }
    if stamp.generation > generation && outranks != Some(stamp.generation) {
        return Decision::Superseded;
    }
    let was_in_use = if is_new_key {
        // The session had not ended: its record was lost.
        created_at_ms.saturating_sub(stamp.used_at_ms) < ttl_ms
    } else {
        // The session before this one has ended. A directory used after that has lost its stamp's number only.
        stamp.is_unread() && stamp.used_at_ms >= created_at_ms
    };
    if was_in_use || (stamp.used_while_away && !is_idle) {
        Decision::Adopt
    } else {
        Decision::BeginAnew
    }
}
