//! How many turns in a row the same worker asked for, by session and server.
//!
//! Invariant: a guess that only saves commands. It is bounded, in memory only, and nothing depends on it being right.

use crate::limits::{STREAK_PAUSE_MAX, STREAKS_MAX};
use crate::names::{ServerName, WorkerId};
use crate::place::SessionPlace;
use crate::spots::Spots;
use crate::time::Monotonic;

/// The turns in a row of one worker.
#[derive(Debug)]
struct Streak {
    worker: WorkerId,
    turns: u8,
    /// When the pause after the last turn has become too long.
    until: Monotonic,
}

/// The streaks of one node.
#[derive(Debug, Default)]
pub(super) struct Streaks(Spots<Streak>);

impl Streaks {
    /// A worker got a turn that it would like to have delegated. Returns how many it had in a row, this one included;
    /// 0 if there is no room to count them.
    pub(super) fn note(
        &mut self,
        session: &SessionPlace,
        server: &ServerName,
        worker: &WorkerId,
        mono: Monotonic,
    ) -> u8 {
        // Streaks are dropped at the pace at which they are made.
        self.drop_old(mono, 2);
        let until = mono.plus(STREAK_PAUSE_MAX);
        let begun = || Streak {
            worker: worker.clone(),
            turns: 0,
            until,
        };
        let id = match self.0.find(session, server) {
            Some(id) => id,
            None if self.0.len() >= STREAKS_MAX => return 0,
            None => self.0.insert(session, server, begun()),
        };
        self.0.set_deadline(id, Some(until));
        let Some(streak) = self.0.get_mut(id).map(|spot| &mut spot.value) else {
            return 0;
        };
        if streak.worker != *worker || streak.until <= mono {
            *streak = begun();
        }
        streak.turns = streak.turns.saturating_add(1);
        streak.until = until;
        streak.turns
    }

    /// A worker got a turn for one call: ends the streak of another worker.
    pub(super) fn interrupt(
        &mut self,
        session: &SessionPlace,
        server: &ServerName,
        worker: &WorkerId,
    ) {
        if let Some(id) = self.0.find(session, server)
            && self
                .0
                .get(id)
                .is_some_and(|spot| spot.value.worker != *worker)
        {
            self.0.remove(id);
        }
    }

    pub(super) fn forget(&mut self, session: &SessionPlace, server: &ServerName) {
        if let Some(id) = self.0.find(session, server) {
            self.0.remove(id);
        }
    }

    pub(super) fn forget_session(&mut self, session: &SessionPlace) {
        for id in self.0.of_session(session) {
            self.0.remove(id);
        }
    }

    /// The streaks of a session: server, worker, turns in a row, and when a pause ends it.
    pub(super) fn of_session(
        &self,
        session: &SessionPlace,
    ) -> Vec<(&ServerName, &WorkerId, u8, Monotonic)> {
        let ids = self.0.of_session(session).into_iter();
        ids.filter_map(|id| self.0.get(id))
            .map(|spot| {
                let streak = &spot.value;
                (&spot.server, &streak.worker, streak.turns, streak.until)
            })
            .collect()
    }

    /// Adds a streak that was stored.
    pub(super) fn restore(
        &mut self,
        session: &SessionPlace,
        server: &ServerName,
        worker: WorkerId,
        turns: u8,
        until: Monotonic,
    ) {
        let streak = Streak {
            worker,
            turns,
            until,
        };
        let id = self.0.insert(session, server, streak);
        self.0.set_deadline(id, Some(until));
    }

    pub(super) fn clear(&mut self) {
        self.0 = Spots::default();
    }

    /// Drops at most `limit` streaks that have ended by a pause.
    pub(super) fn drop_old(&mut self, mono: Monotonic, limit: usize) {
        for _ in 0..limit {
            let Some(id) = self.0.due(mono) else {
                return;
            };
            self.0.remove(id);
        }
    }
}
