//! How sessions of an index expire: their deadlines pass without an event.
//!
//! The *frontier* is the current moment of the index: an entry counts as expired exactly if its deadline is at or
//! before it. It follows the clock one entry at a time, forward and, if the clock stepped back, backward. Only the
//! entries between have to be counted again, and a call that reaches its limit leaves the rest to the next one.

use std::ops::Bound::{Excluded, Included};

use super::Index;
use super::entry::{Entry, ExpiryEvent};
use super::orders::{Position, deadline};
use super::slab::Slot;
use crate::limits::OVERDUE_MAX;
use crate::record::SessionState;
use crate::time::Timestamp;

/// Sets the state of the entry to expired or active, by its side of the frontier. Returns its key if its expiry is to
/// be reported.
pub(super) fn place(
    slot: Slot,
    entry: &mut Entry,
    frontier: Position,
    now: Timestamp,
) -> Option<Box<[u8]>> {
    if entry.state == SessionState::Ended {
        return None;
    }
    if deadline(slot, entry) > frontier {
        entry.state = SessionState::Active;
        return None;
    }
    entry.state = SessionState::Expired;
    // The frontier may still be ahead of a clock that has stepped back.
    let is_reported = entry.expiry == ExpiryEvent::Pending && now >= entry.expires_at;
    is_reported.then(|| {
        entry.expiry = ExpiryEvent::None;
        entry.key.clone()
    })
}

impl Index {
    /// Follows the clock past at most `limit` deadlines, and returns the keys of sessions that expired since the last
    /// call: at most `limit`, and none that the index never saw active.
    pub fn advance(&mut self, now: Timestamp, limit: usize) -> Vec<Box<[u8]>> {
        self.settle(now, limit);
        let count = limit.min(self.overdue.len());
        self.overdue.drain(..count).collect()
    }

    /// Moves the frontier towards `now`, past at most `limit` deadlines.
    pub(super) fn settle(&mut self, now: Timestamp, limit: usize) {
        if self.orders.is_deferred() {
            return;
        }
        let target = Position::end_of(now);
        for _ in 0..limit {
            let moved = if self.frontier < target {
                self.overdue.len() < OVERDUE_MAX && self.step_forward(now, target)
            } else {
                self.frontier > target && self.step_back(now, target)
            };
            if !moved {
                return;
            }
        }
    }

    /// Moves past the next deadline, or to the target if there is none between. Returns whether to continue.
    fn step_forward(&mut self, now: Timestamp, target: Position) -> bool {
        let between = (Excluded(self.frontier), Included(target));
        let Some(next) = self.orders.deadlines.range(between).next().copied() else {
            self.frontier = target;
            return false;
        };
        self.frontier = next;
        self.revise(next.slot, now, |_| {});
        true
    }

    /// The same backward: the session at the frontier has not expired yet.
    fn step_back(&mut self, now: Timestamp, target: Position) -> bool {
        let between = (Excluded(target), Included(self.frontier));
        let Some(last) = self.orders.deadlines.range(between).next_back().copied() else {
            self.frontier = target;
            return false;
        };
        self.frontier = last.before();
        self.revise(last.slot, now, |entry| entry.expiry = ExpiryEvent::Pending);
        true
    }

    /// Keeps the key of an expired session until it is reported.
    pub(super) fn queue_expired(&mut self, expired: Option<Box<[u8]>>) {
        if self.overdue.len() < OVERDUE_MAX {
            self.overdue.extend(expired);
        }
    }
}
