//! When this gateway looks at which session whose turns or claims are waited for.
//!
//! Invariant: how many there are is bounded; one that finds no room is looked at by the other gateways that know of it.

use std::collections::HashMap;
use std::sync::Mutex;

use mooring_session::limits::TURN_QUEUES_MAX;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::key::SessionKey;
use crate::lock::lock;

/// When which session is looked at.
#[derive(Debug, Default)]
pub(super) struct PlannedLooks {
    looks: Mutex<Looks>,
    bell: Notify,
}

#[derive(Debug, Default)]
struct Looks {
    at: HashMap<SessionKey, Instant>,
    /// No look comes before it.
    next: Option<Instant>,
}

impl PlannedLooks {
    /// Rung when a look is planned that comes before all others.
    pub(super) const fn bell(&self) -> &Notify {
        &self.bell
    }

    /// When the next session is due, at the earliest.
    pub(super) fn next(&self) -> Option<Instant> {
        lock(&self.looks).next
    }

    /// Plans the look at a session, if there is room.
    pub(super) fn plan(&self, key: &SessionKey, at: Instant) {
        let looks = &mut *lock(&self.looks);
        if looks.at.len() >= TURN_QUEUES_MAX && !looks.at.contains_key(key) {
            return;
        }
        looks.at.insert(key.clone(), at);
        if looks.next.is_none_or(|next| at < next) {
            looks.next = Some(at);
            self.bell.notify_waiters();
        }
    }

    /// Nothing of this session is waited for.
    pub(super) fn forget(&self, key: &SessionKey) {
        lock(&self.looks).at.remove(key);
    }

    /// Takes the sessions that are due.
    pub(super) fn due(&self) -> Vec<SessionKey> {
        let now = Instant::now();
        let looks = &mut *lock(&self.looks);
        if looks.next.is_none_or(|next| now < next) {
            return Vec::new();
        }
        let due = looks.at.extract_if(|_, at| *at <= now);
        let due = due.map(|(key, _)| key).collect();
        looks.next = looks.at.values().min().copied();
        due
    }
}
