//! Delegated turns: which calls of a session run without asking the store, because the turn is this gateway's.
//!
//! The store delegates the turn of a session at a server to a gateway that asks for it again and again
//! (`mooring_session::turns`). The gateway's calls then take it from [`Delegations`], one after another:
//!
//! | state | event | then |
//! |---|---|---|
//! | counted | [`begin`](Delegations::begin) | the call asks the store; after a few within a second, also for the delegation |
//! | | [`granted`](Delegations::granted) | in use |
//! | | `recall`, `lose_wake_ups` | counted from the beginning; a delegation that is granted meanwhile is recalled |
//! | idle | `begin` | in use; the call asks the store to renew it if that is due, or if the store may have ended it |
//! | | [`recall`](Delegations::recall), [`lose_wake_ups`](Delegations::lose_wake_ups), [`sweep`](Delegations::sweep) after a pause | ended: the turn is left |
//! | in use | `begin` of another call | it asks the store, and the delegation is recalled |
//! | | `recall`, `lose_wake_ups` | recalled |
//! | | [`end`](Delegations::end) | idle |
//! | | [`keep`](Delegations::keep): the call lasts, or waits for its client | ended: the turn is the call's alone |
//! | recalled | `end` | ended: the turn is left |
//!
//! Invariants: of one key at most one call is in use, and a turn is either in this table or with that call. A recall only
//! makes a hand-over fast. What makes it safe is the [`Term`], which is measured from before the store was asked, ends
//! before the lease does, and is checked right before a request is written: see [`Term::covers`].

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

/// How long before the lease the term ends: for the write itself, and for clocks that run at different speeds.
pub const TERM_MARGIN: Duration = Duration::from_millis(200);
/// How long the wake-ups of this gateway may have been unobserved for a delegation to be used. Shorter than the time
/// after which the store ends the delegations of a gateway whose wake-ups have broken,
/// [`DELEGATION_RECONNECT`](mooring_session::limits::DELEGATION_RECONNECT).
pub const WAKE_UPS_SEEN_WITHIN: Duration = Duration::from_millis(100);
/// How long an unused delegation is kept.
pub const UNUSED_MAX: Duration = Duration::from_millis(500);
/// How many calls within [`UNUSED_MAX`] of each other a session has at a server before its next one asks for a delegation.
pub(crate) const CALLS_MIN: u8 = 2;
/// Most sessions and servers that one table knows; a gateway may have several tables. The calls of any other ask the store.
pub(crate) const KNOWN_MAX: usize = 16_384;

/// Time since the machine was started, including the time for which it was suspended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct BootTime(pub Duration);

impl BootTime {
    /// How long ago `earlier` was; zero if it is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// For how long a turn may be relied on without asking the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Term {
    asked_at: BootTime,
    lease: Duration,
    ends_at: BootTime,
}

impl Term {
    /// The term of a turn that was asked for, or renewed, by a command that was sent after `asked_at`.
    #[must_use]
    pub const fn asked(asked_at: BootTime, lease: Duration) -> Self {
        let length = lease.saturating_sub(TERM_MARGIN);
        Self {
            asked_at,
            lease,
            ends_at: BootTime(asked_at.0.saturating_add(length)),
        }
    }

    /// The same term, but no longer than the store surely counts this gateway as alive: for `beat_ttl` after `beat_at`,
    /// when the last beat was sent that the store had acknowledged before it was asked. The store takes the turns of a
    /// gateway that it counts as dead, whatever is left of their leases. The margin is smaller where beats are short.
    #[must_use]
    pub fn while_alive(self, beat_at: BootTime, beat_ttl: Duration) -> Self {
        let surely = beat_ttl.saturating_sub(TERM_MARGIN.min(beat_ttl / 4));
        let alive_until = BootTime(beat_at.0.saturating_add(surely));
        Self {
            ends_at: self.ends_at.min(alive_until),
            ..self
        }
    }

    /// Whether the turn still excludes all other calls.
    #[must_use]
    pub fn covers(self, now: BootTime) -> bool {
        now < self.ends_at
    }

    /// From when on another call may have the turn, unless it is renewed.
    #[must_use]
    pub const fn ends_at(self) -> BootTime {
        self.ends_at
    }

    /// Whether the next call should renew it.
    pub(crate) fn is_due(self, now: BootTime) -> bool {
        now.since(self.asked_at) >= self.lease / 2
    }
}

/// What is known of the wake-ups, by which the store recalls delegations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WakeUps {
    /// They do not arrive.
    #[default]
    Broken,
    /// Their connection was seen to be open.
    SeenAt(BootTime),
}

impl WakeUps {
    /// Whether a delegation may be used.
    #[must_use]
    pub fn are_fresh(self, now: BootTime) -> bool {
        match self {
            Self::Broken => false,
            Self::SeenAt(seen) => now.since(seen) <= WAKE_UPS_SEEN_WITHIN,
        }
    }
}

/// How a call gets its turn.
#[derive(Debug)]
pub enum TurnBeginning<T> {
    /// By asking the store for a turn.
    AskTurn,
    /// By asking the store for a turn, and for a delegation.
    AskDelegation,
    /// It has this one.
    Use(T),
    /// It has this one if the store renews it, as a delegation. Otherwise the call leaves it and asks for a turn.
    Renew(T),
}

/// What was in the table when the wake-ups broke.
#[derive(Debug)]
pub struct LostWakeUps<T, C> {
    /// The turns that no call uses: they are left.
    pub idle: Vec<T>,
    /// The calls that run under a delegation: each has to [keep](Delegations::keep) its turn at once.
    pub running: Vec<C>,
}

/// The delegations of a gateway, or those of its keys of one shard. `K` is a session and a server, `T` a turn, and `C`
/// names a call.
#[derive(Debug)]
pub struct Delegations<K, T, C> {
    known: HashMap<K, KnownTurn<T, C>>,
}

#[derive(Debug)]
enum KnownTurn<T, C> {
    Counted { calls: u8, last: BootTime },
    Idle { turn: T, term: Term, used: BootTime },
    InUse { call: C, is_recalled: bool },
}

impl<K, T, C> Default for Delegations<K, T, C> {
    fn default() -> Self {
        Self {
            known: HashMap::new(),
        }
    }
}

impl<K: Clone + Eq + Hash, T, C: Clone> Delegations<K, T, C> {
    /// A call begins.
    pub fn begin(
        &mut self,
        key: &K,
        call: &C,
        now: BootTime,
        wake_ups: WakeUps,
    ) -> TurnBeginning<T> {
        let Some(known) = self.known.get_mut(key) else {
            if self.known.len() < KNOWN_MAX {
                let counted = KnownTurn::Counted {
                    calls: 1,
                    last: now,
                };
                self.known.insert(key.clone(), counted);
            }
            return TurnBeginning::AskTurn;
        };
        match known {
            KnownTurn::Counted { calls, last } => {
                if now.since(*last) > UNUSED_MAX {
                    *calls = 0;
                }
                *last = now;
                if *calls >= CALLS_MIN && wake_ups.are_fresh(now) {
                    return TurnBeginning::AskDelegation;
                }
                *calls = calls.saturating_add(1);
                TurnBeginning::AskTurn
            }
            // It waits in the line of the store, which recalls the delegation too.
            KnownTurn::InUse { is_recalled, .. } => {
                *is_recalled = true;
                TurnBeginning::AskTurn
            }
            KnownTurn::Idle { .. } => {
                let in_use = KnownTurn::InUse {
                    call: call.clone(),
                    is_recalled: false,
                };
                match std::mem::replace(known, in_use) {
                    KnownTurn::Idle { turn, term, .. } => {
                        let is_sure = term.covers(now) && wake_ups.are_fresh(now);
                        match is_sure && !term.is_due(now) {
                            true => TurnBeginning::Use(turn),
                            false => TurnBeginning::Renew(turn),
                        }
                    }
                    // It was idle.
                    KnownTurn::Counted { .. } | KnownTurn::InUse { .. } => TurnBeginning::AskTurn,
                }
            }
        }
    }

    /// The store delegated to this gateway the turn that a call asked for. Returns whether the call runs under the
    /// delegation: if not, it has to [keep](Self::keep) its turn at once.
    ///
    /// A recall has its own connection to the store, so it may arrive before the reply that grants what it recalls. Then
    /// the counting has begun again since the call asked.
    pub fn granted(&mut self, key: &K, call: &C) -> bool {
        let is_recalled = match self.known.get(key) {
            Some(KnownTurn::Counted { calls, .. }) => *calls < CALLS_MIN,
            Some(KnownTurn::Idle { .. } | KnownTurn::InUse { .. }) => return false,
            None if self.known.len() >= KNOWN_MAX => return false,
            None => true,
        };
        let in_use = KnownTurn::InUse {
            call: call.clone(),
            is_recalled,
        };
        self.known.insert(key.clone(), in_use);
        true
    }

    /// The call that ran under the delegation has ended. Returns its turn if that has to be left.
    pub fn end(&mut self, key: &K, turn: T, term: Term, now: BootTime) -> Option<T> {
        match self.known.get_mut(key) {
            Some(
                known @ KnownTurn::InUse {
                    is_recalled: false, ..
                },
            ) => {
                *known = KnownTurn::Idle {
                    turn,
                    term,
                    used: now,
                };
                None
            }
            _ => {
                self.known.remove(key);
                Some(turn)
            }
        }
    }

    /// The call that runs under the delegation keeps the turn for itself.
    pub fn keep(&mut self, key: &K) {
        self.known.remove(key);
    }

    /// Another call waits for the turn, or the binding has changed. Returns the turn if it has to be left now.
    pub fn recall(&mut self, key: &K) -> Option<T> {
        match self.known.get_mut(key)? {
            KnownTurn::Counted { calls, .. } => {
                *calls = 0;
                None
            }
            KnownTurn::InUse { is_recalled, .. } => {
                *is_recalled = true;
                None
            }
            KnownTurn::Idle { .. } => match self.known.remove(key) {
                Some(KnownTurn::Idle { turn, .. }) => Some(turn),
                _ => None,
            },
        }
    }

    /// The call that runs under the delegation, if there is one.
    #[must_use]
    pub fn running(&self, key: &K) -> Option<&C> {
        match self.known.get(key)? {
            KnownTurn::InUse { call, .. } => Some(call),
            KnownTurn::Counted { .. } | KnownTurn::Idle { .. } => None,
        }
    }

    /// The store cannot recall delegations any more: all end.
    pub fn lose_wake_ups(&mut self) -> LostWakeUps<T, C> {
        let mut lost = LostWakeUps {
            idle: Vec::new(),
            running: Vec::new(),
        };
        for (key, known) in std::mem::take(&mut self.known) {
            match known {
                KnownTurn::Counted { .. } => {}
                KnownTurn::Idle { turn, .. } => lost.idle.push(turn),
                KnownTurn::InUse { call, .. } => {
                    lost.running.push(call.clone());
                    let in_use = KnownTurn::InUse {
                        call,
                        is_recalled: true,
                    };
                    self.known.insert(key, in_use);
                }
            }
        }
        lost
    }

    /// Forgets what was not used for [`UNUSED_MAX`]. Returns the turns to leave.
    pub fn sweep(&mut self, now: BootTime) -> Vec<T> {
        let is_unused = |_: &K, known: &mut KnownTurn<T, C>| match known {
            KnownTurn::Counted { last: used, .. } | KnownTurn::Idle { used, .. } => {
                now.since(*used) > UNUSED_MAX
            }
            KnownTurn::InUse { .. } => false,
        };
        let unused = self.known.extract_if(is_unused);
        unused
            .filter_map(|(_, known)| match known {
                KnownTurn::Idle { turn, .. } => Some(turn),
                KnownTurn::Counted { .. } | KnownTurn::InUse { .. } => None,
            })
            .collect()
    }

    /// Whether there is nothing to [sweep](Self::sweep).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }
}
