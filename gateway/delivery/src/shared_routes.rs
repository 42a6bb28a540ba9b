//! Shared routes: bindings that the calls of a parallel server use without asking the store.
//!
//! The store delegates the route of a session to a server, as it does with [turns](crate::Delegations), to a gateway that
//! asks for it again and again. Nobody waits for a route, so any number of calls uses it and none gives it back: the store
//! notifies the gateway when the binding changes, and forgets the delegation when it lapses. Invariants: a route is used only
//! within its [`Term`] and while wake-ups arrive; it is dropped as soon as it may not be true any more.

use std::collections::HashMap;
use std::hash::Hash;

use crate::delegation::{BootTime, CALLS_MIN, KNOWN_MAX, Term, UNUSED_MAX, WakeUps};

/// How a call gets its route.
#[derive(Debug, PartialEq, Eq)]
pub enum RouteBeginning<R> {
    /// By asking the store.
    Ask,
    /// By asking the store, also for a delegation of the route.
    AskDelegation,
    /// It is this one.
    Use(R),
}

/// The routes of a gateway, or those of its keys of one shard. `K` is a session and a server, `R` a route.
#[derive(Debug)]
pub struct SharedRoutes<K, R> {
    known: HashMap<K, KnownRoute<R>>,
}

#[derive(Debug)]
struct KnownRoute<R> {
    /// In a row, and not counted further while the route is delegated.
    calls: u8,
    used: BootTime,
    delegated: Option<RouteDelegation<R>>,
}

#[derive(Debug)]
struct RouteDelegation<R> {
    route: R,
    term: Term,
    /// Whether a call asks for its renewal. That call may have been dropped, so no other one waits for it.
    is_asked_for: bool,
}

impl<K, R> Default for SharedRoutes<K, R> {
    fn default() -> Self {
        Self {
            known: HashMap::new(),
        }
    }
}

impl<K: Clone + Eq + Hash, R: Clone> SharedRoutes<K, R> {
    /// A call begins.
    pub fn begin(&mut self, key: &K, now: BootTime, wake_ups: WakeUps) -> RouteBeginning<R> {
        let Some(known) = self.known.get_mut(key) else {
            if self.known.len() < KNOWN_MAX {
                let counted = KnownRoute {
                    calls: 1,
                    used: now,
                    delegated: None,
                };
                self.known.insert(key.clone(), counted);
            }
            return RouteBeginning::Ask;
        };
        let is_in_a_row = now.since(known.used) <= UNUSED_MAX;
        known.used = now;
        let are_fresh = wake_ups.are_fresh(now);
        if let Some(delegated) = &mut known.delegated
            && are_fresh
            && delegated.term.covers(now)
        {
            if delegated.term.is_due(now) && !std::mem::replace(&mut delegated.is_asked_for, true) {
                return RouteBeginning::AskDelegation;
            }
            return RouteBeginning::Use(delegated.route.clone());
        }
        known.calls = match is_in_a_row {
            true => known.calls.saturating_add(1),
            false => 1,
        };
        match known.calls > CALLS_MIN && are_fresh {
            true => RouteBeginning::AskDelegation,
            false => RouteBeginning::Ask,
        }
    }

    /// The store delegated this route to the gateway. Dropped if a recall overtook the reply: that has removed the count.
    pub fn granted(&mut self, key: &K, route: R, term: Term) {
        let known = self.known.get_mut(key);
        if let Some(known) = known.filter(|known| known.calls > CALLS_MIN) {
            known.delegated = Some(RouteDelegation {
                route,
                term,
                is_asked_for: false,
            });
        }
    }

    /// The binding has changed. Returns whether its route was delegated.
    pub fn recall(&mut self, key: &K) -> bool {
        let known = self.known.remove(key);
        known.is_some_and(|known| known.delegated.is_some())
    }

    /// The store cannot recall routes any more. Returns how many there were.
    pub fn lose_wake_ups(&mut self) -> usize {
        let lost = std::mem::take(&mut self.known).into_values();
        lost.filter(|known| known.delegated.is_some()).count()
    }

    /// Forgets what was not used for [`UNUSED_MAX`].
    pub fn sweep(&mut self, now: BootTime) {
        self.known
            .retain(|_, known| now.since(known.used) <= UNUSED_MAX);
    }

    /// Whether there is nothing to [sweep](Self::sweep).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(ms: u64) -> BootTime {
        BootTime(Duration::from_millis(ms))
    }

    fn begin(routes: &mut SharedRoutes<u8, u8>, ms: u64) -> RouteBeginning<u8> {
        routes.begin(&0, at(ms), WakeUps::SeenAt(at(ms)))
    }

    fn term(ms: u64) -> Term {
        Term::asked(at(ms), Duration::from_millis(1_800))
    }

    fn delegated() -> SharedRoutes<u8, u8> {
        let mut routes = SharedRoutes::default();
        for _ in 0..CALLS_MIN {
            assert_eq!(begin(&mut routes, 1_000), RouteBeginning::Ask);
        }
        assert_eq!(begin(&mut routes, 1_000), RouteBeginning::AskDelegation);
        routes.granted(&0, 7, term(1_000));
        routes
    }

    #[test]
    fn calls_in_a_row_share_a_route_which_one_of_them_renews() {
        let mut routes = delegated();
        assert_eq!(begin(&mut routes, 1_010), RouteBeginning::Use(7));
        assert_eq!(begin(&mut routes, 1_450), RouteBeginning::Use(7));
        assert_eq!(begin(&mut routes, 1_910), RouteBeginning::AskDelegation);
        assert_eq!(begin(&mut routes, 1_910), RouteBeginning::Use(7));
        routes.granted(&0, 8, term(1_910));
        assert_eq!(begin(&mut routes, 2_400), RouteBeginning::Use(8));
    }

    #[test]
    fn a_route_ends_with_its_term_its_wake_ups_and_a_recall() {
        let mut routes = delegated();
        let stale = WakeUps::SeenAt(at(500));
        assert_eq!(routes.begin(&0, at(1_010), stale), RouteBeginning::Ask);
        assert_eq!(begin(&mut routes, 2_600), RouteBeginning::Ask);
        for end in [
            |routes: &mut SharedRoutes<u8, u8>| assert!(routes.recall(&0)),
            |routes: &mut SharedRoutes<u8, u8>| assert_eq!(routes.lose_wake_ups(), 1),
            |routes: &mut SharedRoutes<u8, u8>| routes.sweep(at(2_000)),
        ] {
            let mut routes = delegated();
            end(&mut routes);
            assert!(routes.is_empty());
            assert_eq!(begin(&mut routes, 1_010), RouteBeginning::Ask);
            // The reply to what was asked before comes late.
            routes.granted(&0, 7, term(1_000));
            assert_eq!(begin(&mut routes, 1_020), RouteBeginning::Ask);
        }
    }
}
