//! State that this gateway has recently read from Redis: all that it may use while Redis is away.
//!
//! Invariants: it is bounded, it is never read while Redis is reachable, and it contains only bound bindings. Ages are measured by the monotonic clock, so setting the wall clock makes nothing older or younger.

use std::collections::{BTreeMap, HashMap};

use mooring_session::names::{Principal, ServerName};
use mooring_session::record::SessionState;
use mooring_session::time::{Millis, Monotonic};
use mooring_session::view::{BindingState, BindingView, RecordView};

use crate::key::SessionKey;

/// Longest time between a read and the start of the outage for the read to be usable.
pub(super) const USABLE_FOR: Millis = Millis::new(60_000);
/// Most sessions. Beyond it the least recently read are forgotten.
pub(super) const SESSIONS_MAX: usize = 20_000;

/// The sessions in two generations: reading moves a session to the young one; when that is full or a minute old, it
/// becomes the old one, and sessions that were not read since are dropped at once. No search for old entries is needed.
#[derive(Debug, Default)]
pub(crate) struct Shadow {
    young: HashMap<SessionKey, SessionSnapshot>,
    old: HashMap<SessionKey, SessionSnapshot>,
    rotated_at: Monotonic,
}

/// The state that was read of one session.
#[derive(Clone, Debug)]
pub(super) struct SessionSnapshot {
    pub(super) principal: Principal,
    /// The whole record, if it was read. Its bindings are in `bindings`, which may be more recent.
    pub(super) record: Option<RecordView>,
    pub(super) bindings: BTreeMap<ServerName, BindingSnapshot>,
    read_at: Monotonic,
}

impl SessionSnapshot {
    /// Only the existence of a session of this principal.
    pub(super) fn without_record(principal: Principal, now: Monotonic) -> Self {
        Self {
            principal,
            record: None,
            bindings: BTreeMap::new(),
            read_at: now,
        }
    }
}

/// A binding and the time of the read.
#[derive(Clone, Debug)]
pub(super) struct BindingSnapshot {
    pub(super) view: BindingView,
    read_at: Monotonic,
}

impl Shadow {
    /// Notes a binding in a reply; forgets it if it may not be used while Redis is away.
    pub(super) fn note_binding(
        &mut self,
        key: &SessionKey,
        principal: &Principal,
        view: &BindingView,
        now: Monotonic,
    ) {
        if view.state != BindingState::Bound {
            self.forget_binding(key, &view.server);
            return;
        }
        let read = self.entry(key, principal, now);
        match read.bindings.get_mut(&view.server) {
            // The hot path: a ROUTE with the same reply as before.
            Some(known) if known.view.epoch == view.epoch => known.read_at = now,
            _ => {
                let view = view.clone();
                read.bindings
                    .insert(view.server.clone(), BindingSnapshot { view, read_at: now });
            }
        }
    }

    /// Notes a whole record in a reply.
    pub(super) fn note_record(&mut self, key: &SessionKey, record: &RecordView, now: Monotonic) {
        if record.state != SessionState::Active {
            self.forget(key);
            return;
        }
        let read = self.entry(key, &record.principal, now);
        read.bindings.clear();
        read.record = Some(RecordView {
            bindings: Vec::new(),
            ..record.clone()
        });
        for view in &record.bindings {
            self.note_binding(key, &record.principal, view, now);
        }
    }

    pub(super) fn forget(&mut self, key: &SessionKey) {
        self.young.remove(key);
        self.old.remove(key);
    }

    pub(super) fn forget_binding(&mut self, key: &SessionKey, server: &ServerName) {
        for half in [&mut self.young, &mut self.old] {
            if let Some(read) = half.get_mut(key) {
                read.bindings.remove(server);
            }
        }
    }

    /// The usable state of a session if Redis went away at `away_since`.
    pub(super) fn usable(
        &self,
        key: &SessionKey,
        away_since: Monotonic,
    ) -> Option<SessionSnapshot> {
        let is_usable_at = |read_at: Monotonic| away_since <= read_at.plus(USABLE_FOR);
        let read = self.young.get(key).or_else(|| self.old.get(key))?;
        if !is_usable_at(read.read_at) {
            return None;
        }
        let mut read = read.clone();
        read.bindings
            .retain(|_, binding| is_usable_at(binding.read_at));
        Some(read)
    }

    fn entry(
        &mut self,
        key: &SessionKey,
        principal: &Principal,
        now: Monotonic,
    ) -> &mut SessionSnapshot {
        let is_due = self.rotated_at.plus(USABLE_FOR) <= now;
        if is_due || self.young.len() >= SESSIONS_MAX / 2 {
            self.old = std::mem::take(&mut self.young);
            self.rotated_at = now;
        }
        let old = &mut self.old;
        let read = self.young.entry(key.clone()).or_insert_with(|| {
            old.remove(key)
                .unwrap_or_else(|| SessionSnapshot::without_record(principal.clone(), now))
        });
        read.read_at = now;
        read
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;
    use crate::test_support::requests as make;

    fn at(ms: u64) -> Monotonic {
        Monotonic::from_ms(ms)
    }

    fn view(epoch: u64, state: BindingState) -> BindingView {
        BindingView {
            server: make::server("tools"),
            state,
            instance: make::instance("i1"),
            upstream_session: None,
            owner: None,
            driver: make::worker("w:1"),
            epoch,
            bound_at: mooring_session::time::Timestamp::default(),
            lease_until: None,
            rebinds: 0,
            last_reason: None,
        }
    }

    fn note(shadow: &mut Shadow, session: &str, view: &BindingView, ms: u64) {
        let alice = make::principal("alice");
        shadow.note_binding(&make::key(session), &alice, view, at(ms));
    }

    fn epoch(shadow: &Shadow, session: &str, away_ms: u64) -> Option<u64> {
        let read = shadow.usable(&make::key(session), at(away_ms))?;
        Some(read.bindings.values().next()?.view.epoch)
    }

    #[test]
    fn a_binding_is_believed_for_a_minute_after_it_was_last_read() {
        let mut shadow = Shadow::default();
        let bound = view(7, BindingState::Bound);
        note(&mut shadow, "s", &bound, 0);
        assert_eq!(epoch(&shadow, "s", 60_000), Some(7));
        assert_eq!(epoch(&shadow, "s", 60_001), None);
        note(&mut shadow, "s", &bound, 50_000);
        note(&mut shadow, "other", &bound, 70_000);
        assert_eq!(epoch(&shadow, "s", 110_000), Some(7));
        note(&mut shadow, "s", &view(8, BindingState::Bound), 80_000);
        assert_eq!(epoch(&shadow, "s", 80_000), Some(8));
    }

    #[test]
    fn a_binding_that_is_lost_or_claimed_is_forgotten() {
        let mut shadow = Shadow::default();
        for state in [BindingState::Claimed, BindingState::Orphaned] {
            note(&mut shadow, "s", &view(7, BindingState::Bound), 0);
            note(&mut shadow, "s", &view(8, state), 1);
            assert_eq!(epoch(&shadow, "s", 1), None);
        }
    }

    #[test]
    fn it_never_holds_more_than_its_bound_and_keeps_what_is_used() {
        let mut shadow = Shadow::default();
        let bound = view(7, BindingState::Bound);
        for n in 0..2 * SESSIONS_MAX {
            note(&mut shadow, &format!("s{n}"), &bound, 0);
            note(&mut shadow, "used", &bound, 0);
            assert!(shadow.young.len() + shadow.old.len() <= SESSIONS_MAX);
        }
        assert_eq!(epoch(&shadow, "used", 0), Some(7));
        assert_eq!(epoch(&shadow, "s0", 0), None);
    }
}
