//! The sessions this worker drives: what its gauge counts, and what its keeper keeps from expiring.
//!
//! Nothing depends on it for correctness. A binding counts here from the time this worker made or took it over until
//! the session ends here, another worker is seen to drive it, or it has been idle for its TTL.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use mooring_session::names::{Principal, ServerName};

use super::Session;
use crate::store::SessionKey;

/// Most bindings remembered; beyond it new ones are served but not counted or kept alive.
const BINDINGS_MAX: usize = 1_000_000;

/// The bindings this worker uses.
#[derive(Clone, Debug)]
pub struct Driven {
    bindings: Arc<Mutex<HashMap<(SessionKey, ServerName), Use>>>,
    idle: Duration,
}

#[derive(Debug)]
struct Use {
    principal: Principal,
    in_flight: u32,
    used_at: Instant,
    driver: Driver,
}

/// Who the record says drives a binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// This worker: it made the binding, or took it over from a dead one.
    This,
    /// Another, which is alive; this worker serves single requests of it.
    Other,
}

/// Keeps a session from expiring while a call or a stream of it is open. Ends when dropped.
#[derive(Debug)]
pub struct InFlight {
    driven: Driven,
    of: (SessionKey, ServerName),
}

impl Driven {
    /// Nothing yet; a binding is forgotten when it has been idle for `idle`.
    #[must_use]
    pub fn new(idle: Duration) -> Self {
        Self {
            bindings: Arc::default(),
            idle,
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(SessionKey, ServerName), Use>> {
        // The map is whole after every statement, so a panic elsewhere leaves nothing half done.
        self.bindings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the begin of a call or stream.
    #[must_use]
    pub fn begin(&self, session: &Session, server: &ServerName, driver: Driver) -> InFlight {
        let of = (session.key.clone(), server.clone());
        let mut bindings = self.lock();
        let is_known = bindings.contains_key(&of);
        if is_known || bindings.len() < BINDINGS_MAX {
            let entry = bindings.entry(of.clone()).or_insert_with(|| Use {
                principal: session.principal.clone(),
                in_flight: 0,
                used_at: Instant::now(),
                driver,
            });
            entry.in_flight = entry.in_flight.saturating_add(1);
            entry.used_at = Instant::now();
            entry.driver = driver;
        }
        InFlight {
            driven: self.clone(),
            of,
        }
    }

    /// The session is over, and so is its binding to `server`.
    pub fn forget(&self, session: &Session, server: &ServerName) {
        self.lock().remove(&(session.key.clone(), server.clone()));
    }

    /// How many bindings this worker made or drove last.
    #[must_use]
    pub fn count(&self) -> usize {
        self.lock()
            .values()
            .filter(|used| used.driver == Driver::This)
            .count()
    }

    /// The sessions with a binding remembered here, each once.
    #[must_use]
    pub fn recent(&self) -> HashSet<SessionKey> {
        self.lock().keys().map(|(key, _)| key.clone()).collect()
    }

    /// The sessions with something open, which must not expire meanwhile; what has been idle too long is forgotten.
    #[must_use]
    pub fn in_use(&self) -> Vec<(SessionKey, Principal)> {
        let mut bindings = self.lock();
        bindings.retain(|_, used| used.in_flight > 0 || used.used_at.elapsed() < self.idle);
        bindings
            .iter()
            .filter(|(_, used)| used.in_flight > 0)
            .map(|((key, _), used)| (key.clone(), used.principal.clone()))
            .collect()
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if let Some(used) = self.driven.lock().get_mut(&self.of) {
            used.in_flight = used.in_flight.saturating_sub(1);
            used.used_at = Instant::now();
        }
    }
}
