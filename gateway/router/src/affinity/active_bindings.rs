//! The active bindings of this gateway, for its gauge, and the sessions that it keeps from expiring.
//!
//! Correctness does not depend on it. A binding counts here from the time this gateway made it or took it over until
//! the session ends here, a peer is seen to have it, or it has been idle for its TTL.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;
use mooring_session::names::{Principal, ServerName, WorkerId};
use mooring_session::view::{BindingView, RecordView};

use super::Session;
use mooring_store::SessionKey;

/// Most bindings remembered; further ones are served but neither counted nor kept alive.
const BINDINGS_MAX: usize = 1_000_000;

type Bindings = HashMap<(SessionKey, ServerName), ActiveBinding, RandomState>;

/// The bindings that this gateway uses.
#[derive(Clone, Debug)]
pub struct ActiveBindings {
    bindings: Arc<Mutex<Bindings>>,
    idle: Duration,
}

#[derive(Debug)]
struct ActiveBinding {
    principal: Principal,
    calls: u32,
    streams: u32,
    used_at: Instant,
    /// `None` until the store has confirmed the session and its binding.
    holder: Option<BindingHolder>,
}

impl ActiveBinding {
    fn is_open(&self) -> bool {
        self.calls > 0 || self.streams > 0
    }

    fn count(&mut self, kind: InFlightKind) -> &mut u32 {
        match kind {
            InFlightKind::Call => &mut self.calls,
            InFlightKind::Stream => &mut self.streams,
        }
    }
}

/// What is open in a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InFlightKind {
    /// A message of the client, until its reply is complete.
    Call,
    /// A stream without a call, open while the client is connected.
    Stream,
}

/// The gateway that has a binding, according to its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BindingHolder {
    /// This gateway: it made the binding, or took it over from a dead one.
    This,
    /// A live peer; this gateway serves single requests of the session.
    Other,
}

/// Keeps a session from expiring while a call or stream is open. Ends when dropped.
#[derive(Debug)]
pub struct InFlight {
    active_bindings: ActiveBindings,
    of: (SessionKey, ServerName),
    kind: InFlightKind,
}

impl ActiveBindings {
    /// Empty. Bindings are forgotten after being idle for `idle`.
    #[must_use]
    pub fn new(idle: Duration) -> Self {
        Self {
            bindings: Arc::default(),
            idle,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Bindings> {
        // The map is consistent after every statement, so a poisoned lock is usable.
        self.bindings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the begin of a call or stream. The entry is removed again if the session turns out not to exist.
    #[must_use]
    pub fn begin(&self, session: &Session, server: &ServerName, kind: InFlightKind) -> InFlight {
        let of = (session.key.clone(), server.clone());
        let mut bindings = self.lock();
        let is_known = bindings.contains_key(&of);
        if is_known || bindings.len() < BINDINGS_MAX {
            let entry = bindings.entry(of.clone()).or_insert_with(|| ActiveBinding {
                principal: session.principal.clone(),
                calls: 0,
                streams: 0,
                used_at: Instant::now(),
                holder: None,
            });
            let count = entry.count(kind);
            *count = count.saturating_add(1);
            entry.used_at = Instant::now();
        }
        InFlight {
            active_bindings: self.clone(),
            of,
            kind,
        }
    }

    /// Removes the bindings of a session that has ended.
    pub fn forget(&self, key: &SessionKey, record: &RecordView) {
        let mut bindings = self.lock();
        for binding in &record.bindings {
            bindings.remove(&(key.clone(), binding.server.clone()));
        }
    }

    /// The number of bindings that belong to this gateway.
    #[must_use]
    pub fn count(&self) -> usize {
        self.lock()
            .values()
            .filter(|used| used.holder == Some(BindingHolder::This))
            .count()
    }

    /// The sessions with a remembered binding or an open stream, each once.
    #[must_use]
    pub fn recent(&self) -> HashSet<SessionKey> {
        self.lock()
            .iter()
            .filter(|(_, used)| used.holder.is_some() || used.streams > 0)
            .map(|((key, _), _)| key.clone())
            .collect()
    }

    /// The sessions with an open call or stream, which must not expire. Forgets entries that have been idle too long.
    #[must_use]
    pub fn in_use(&self) -> Vec<(SessionKey, Principal)> {
        let mut bindings = self.lock();
        bindings.retain(|_, used| used.is_open() || used.used_at.elapsed() < self.idle);
        bindings
            .iter()
            .filter(|(_, used)| used.is_open())
            .map(|((key, _), used)| (key.clone(), used.principal.clone()))
            .collect()
    }

    /// The sessions with an open call, which admission must spare.
    #[must_use]
    pub fn in_call(&self) -> Vec<(SessionKey, Principal)> {
        self.lock()
            .iter()
            .filter(|(_, used)| used.calls > 0)
            .map(|((key, _), used)| (key.clone(), used.principal.clone()))
            .collect()
    }

    /// Whether a call of the session under `key` is open here.
    #[must_use]
    pub fn is_in_call(&self, key: &SessionKey, servers: impl Iterator<Item = ServerName>) -> bool {
        let bindings = self.lock();
        servers
            .map(|server| (key.clone(), server))
            .any(|of| bindings.get(&of).is_some_and(|used| used.calls > 0))
    }
}

impl BindingHolder {
    /// The holder of a binding, as seen by this gateway.
    #[must_use]
    pub fn of(binding: &BindingView, worker: &WorkerId) -> Self {
        if binding.driver == *worker {
            Self::This
        } else {
            Self::Other
        }
    }
}

impl InFlight {
    /// Records that the session is bound, and the holder of its binding.
    pub fn set_holder(&self, holder: BindingHolder) {
        if let Some(used) = self.active_bindings.lock().get_mut(&self.of) {
            used.holder = Some(holder);
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut bindings = self.active_bindings.lock();
        let Some(used) = bindings.get_mut(&self.of) else {
            return;
        };
        let count = used.count(self.kind);
        *count = count.saturating_sub(1);
        used.used_at = Instant::now();
        if used.holder.is_none() && !used.is_open() {
            bindings.remove(&self.of);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use mooring_session::names::SessionId;

    use super::*;

    fn session(id: &[u8]) -> Session {
        let principal = Principal::parse(b"local").unwrap();
        Session::named("mcpgw:", SessionId::parse(id).unwrap(), principal)
    }

    fn tools() -> ServerName {
        ServerName::parse(b"tools").unwrap()
    }

    #[test]
    fn an_unknown_session_leaves_nothing() {
        let active_bindings = ActiveBindings::new(Duration::from_secs(60));
        let open = active_bindings.begin(&session(b"a"), &tools(), InFlightKind::Call);
        assert_eq!(
            active_bindings.in_use().len(),
            1,
            "it is kept alive while it is asked for"
        );
        assert_eq!(
            (active_bindings.count(), active_bindings.recent().len()),
            (0, 0)
        );
        drop(open);
        assert_eq!(active_bindings.lock().len(), 0);
    }

    #[test]
    fn calls_and_streams_are_distinguished() {
        let active_bindings = ActiveBindings::new(Duration::from_secs(60));
        let (one, two) = (session(b"one"), session(b"two"));
        let stream = active_bindings.begin(&one, &tools(), InFlightKind::Stream);
        stream.set_holder(BindingHolder::This);
        let call = active_bindings.begin(&two, &tools(), InFlightKind::Call);
        call.set_holder(BindingHolder::Other);
        let is_in_call =
            |session: &Session| active_bindings.is_in_call(&session.key, [tools()].into_iter());
        assert_eq!(active_bindings.in_use().len(), 2);
        assert_eq!(active_bindings.in_call().len(), 1);
        assert!(is_in_call(&two) && !is_in_call(&one));
        drop((stream, call));
        assert_eq!(
            (
                active_bindings.in_use().len(),
                active_bindings.in_call().len()
            ),
            (0, 0)
        );
        assert_eq!(
            (active_bindings.count(), active_bindings.recent().len()),
            (1, 2),
            "idle, and known"
        );
    }
}
