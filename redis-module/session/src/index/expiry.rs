//! Sessions expire by their deadlines, and nobody tells the index when.
//!
//! The *frontier* is the index's own moment: an entry counts as expired exactly where its deadline is at or before it.
//! It follows the clock one entry at a time, forward and, where the clock stepped back, back again; so what has to be
//! counted anew is what lies between, and a call that is not allowed all of it leaves the rest to the next one.

use std::ops::Bound::{Excluded, Included};

use super::Index;
use super::entry::{Entry, Expiry};
use super::orders::{Position, deadline};
use super::slab::Slot;
use crate::limits::OVERDUE_MAX;
use crate::record::SessionState;
use crate::time::Timestamp;

/// Lets the entry stand as expired or active, by its side of the frontier. Answers with its key where somebody is to be
/// told that it expired.
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
    let is_news = entry.expiry == Expiry::Told && now >= entry.expires_at;
    is_news.then(|| {
        entry.expiry = Expiry::Silent;
        entry.key.clone()
    })
}

impl Index {
    /// Follows the clock past at most `limit` deadlines, and tells the keys of sessions that expired since it was last
    /// asked: at most `limit`, and none that was never seen active.
    pub fn advance(&mut self, now: Timestamp, limit: usize) -> Vec<Box<[u8]>> {
        self.settle(now, limit);
        let told = limit.min(self.overdue.len());
        self.overdue.drain(..told).collect()
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

    /// Past the next deadline, or to the target where there is none between. Answers whether to go on.
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

    /// The same the other way: the session at the frontier has not expired yet after all.
    fn step_back(&mut self, now: Timestamp, target: Position) -> bool {
        let between = (Excluded(target), Included(self.frontier));
        let Some(last) = self.orders.deadlines.range(between).next_back().copied() else {
            self.frontier = target;
            return false;
        };
        self.frontier = last.before();
        self.revise(last.slot, now, |entry| entry.expiry = Expiry::Told);
        true
    }

    /// Keeps the key of a session that expired until somebody asks.
    pub(super) fn tell(&mut self, expired: Option<Box<[u8]>>) {
        if self.overdue.len() < OVERDUE_MAX {
            self.overdue.extend(expired);
        }
    }
}
