//! The open streams of events of the page, limited by person and in all.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mooring_session::names::Principal;

/// Most streams of one person at this gateway: each open page has one.
const PER_USER_MAX: usize = 8;
/// Most streams of this gateway.
const STREAMS_MAX: usize = 64;

/// The open streams, by person.
#[derive(Debug, Default)]
pub(in crate::http) struct LiveConnections(Arc<Mutex<HashMap<Principal, usize>>>);

/// One open stream; it is counted until this is dropped.
#[derive(Debug)]
pub(in crate::http) struct LivePermit {
    connections: Arc<Mutex<HashMap<Principal, usize>>>,
    user: Principal,
}

impl LiveConnections {
    /// Counts a stream of this person; none if there are too many.
    pub(in crate::http) fn open(&self, user: &Principal) -> Option<LivePermit> {
        let mut open = lock(&self.0);
        let of_user = open.get(user).copied().unwrap_or_default();
        if of_user >= PER_USER_MAX || open.values().sum::<usize>() >= STREAMS_MAX {
            return None;
        }
        open.insert(user.clone(), of_user + 1);
        Some(LivePermit {
            connections: Arc::clone(&self.0),
            user: user.clone(),
        })
    }
}

impl Drop for LivePermit {
    fn drop(&mut self) {
        if let Entry::Occupied(mut open) = lock(&self.connections).entry(self.user.clone()) {
            match open.get() {
                0 | 1 => drop(open.remove()),
                more => *open.get_mut() = more - 1,
            }
        }
    }
}

fn lock(
    connections: &Mutex<HashMap<Principal, usize>>,
) -> MutexGuard<'_, HashMap<Principal, usize>> {
    connections.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    fn user(number: usize) -> Principal {
        Principal::parse(format!("user {number}").as_bytes()).unwrap()
    }

    #[test]
    fn a_person_cannot_take_the_streams_of_others() {
        let connections = LiveConnections::default();
        let open = |number| connections.open(&user(number));
        let mut held: Vec<_> = (0..PER_USER_MAX).map(|_| open(0).unwrap()).collect();
        assert!(open(0).is_none(), "one more of the same person");
        held.pop();
        held.push(open(0).unwrap());
        for number in 1..STREAMS_MAX / PER_USER_MAX {
            held.extend((0..PER_USER_MAX).map(|_| open(number).unwrap()));
        }
        assert!(open(100).is_none(), "one more of all");
        drop(held);
        assert_eq!(
            lock(&connections.0).len(),
            0,
            "people without streams are forgotten"
        );
    }
}
