//! The rule for a session directory when it is opened, without I/O: keep, adopt, replace or refuse it.
//!
//! Invariant: a session that has ended gets a new directory; one whose record was lost, or that was used while the store
//! was away, is adopted. No file of a session that has not ended is lost.

use super::incarnation::Incarnation;
use super::stamp::Stamp;

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
