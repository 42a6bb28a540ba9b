//! The active bindings of this gateway, for its gauge, and the sessions that it keeps from expiring.
//!
//! Correctness does not depend on it. A binding counts here from the time this gateway made it or took it over until
//! the session ends here, a peer is seen to have it, or it has been idle for its TTL.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;
use mooring_session::names::{Principal, ServerName, WorkerId};
use mooring_session::view::{BindingView, RecordView};

use super::Session;
use crate::lock_stripes::{LockStripes, PARTS};
use mooring_store::SessionKey;

/// Most bindings remembered in a part; further ones are served but neither counted nor kept alive.
const BINDINGS_MAX: usize = 1_000_000 / PARTS;

type Bindings = HashMap<(SessionKey, ServerName), ActiveBinding, RandomState>;

/// The bindings that this gateway uses.
#[derive(Clone, Debug)]
pub struct ActiveBindings {
    bindings: Arc<LockStripes<Bindings>>,
    idle: Duration,
}

#[derive(Debug)]
struct ActiveBinding {
    principal: Principal,
    calls: u32,
    streams: u32,
    /// The end of its last use; without meaning while one is open.
    used_at: Instant,
    /// `None` until the store has confirmed the session and its binding.
    holder: Option<BindingHolder>,
}

impl ActiveBinding {
    fn new(principal: &Principal) -> Self {
        Self {
            principal: principal.clone(),
            calls: 0,
            streams: 0,
            used_at: Instant::now(),
            holder: None,
        }
    }

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

    /// What `pick` takes of all bindings.
    fn collect<T, All: Default + Extend<T>>(
        &self,
        pick: impl Fn((&(SessionKey, ServerName), &ActiveBinding)) -> Option<T>,
    ) -> All {
        let mut all = All::default();
        for part in self.bindings.parts() {
            all.extend(part.iter().filter_map(&pick));
        }
        all
    }

    /// Records the begin of a call or stream. The entry is removed again if the session turns out not to exist.
    #[must_use]
    pub fn begin(&self, session: &Session, server: &ServerName, kind: InFlightKind) -> InFlight {
        let of = (session.key.clone(), server.clone());
        let mut bindings = self.bindings.part_of(&of);
        let is_full = bindings.len() >= BINDINGS_MAX;
        let used = match bindings.entry(of.clone()) {
            Entry::Occupied(known) => Some(known.into_mut()),
            Entry::Vacant(_) if is_full => None,
            Entry::Vacant(new) => Some(new.insert(ActiveBinding::new(&session.principal))),
        };
        if let Some(used) = used {
            let count = used.count(kind);
            *count = count.saturating_add(1);
        }
        InFlight {
            active_bindings: self.clone(),
            of,
            kind,
        }
    }

    /// Removes the bindings of a session that has ended.
    pub fn forget(&self, key: &SessionKey, record: &RecordView) {
        for binding in &record.bindings {
            let of = (key.clone(), binding.server.clone());
            self.bindings.part_of(&of).remove(&of);
        }
    }

    /// The number of bindings that belong to this gateway.
    #[must_use]
    pub fn count(&self) -> usize {
        let is_own = |used: &&ActiveBinding| used.holder == Some(BindingHolder::This);
        let parts = self.bindings.parts();
        parts.map(|part| part.values().filter(is_own).count()).sum()
    }

    /// The sessions with a remembered binding or an open stream, each once.
    #[must_use]
    pub fn recent(&self) -> HashSet<SessionKey> {
        self.collect(|((key, _), used)| {
            (used.holder.is_some() || used.streams > 0).then(|| key.clone())
        })
    }

    /// The sessions with an open call or stream, which must not expire. Forgets entries that have been idle too long.
    #[must_use]
    pub fn in_use(&self) -> Vec<(SessionKey, Principal)> {
        for mut part in self.bindings.parts() {
            part.retain(|_, used| used.is_open() || used.used_at.elapsed() < self.idle);
        }
        self.collect(|((key, _), used)| {
            (used.is_open()).then(|| (key.clone(), used.principal.clone()))
        })
    }

    /// The sessions with an open call, which admission must spare.
    #[must_use]
    pub fn in_call(&self) -> Vec<(SessionKey, Principal)> {
        self.collect(|((key, _), used)| {
            (used.calls > 0).then(|| (key.clone(), used.principal.clone()))
        })
    }

    /// Whether a call of the session under `key` is open here.
    #[must_use]
    pub fn is_in_call(
        &self,
        key: &SessionKey,
        mut servers: impl Iterator<Item = ServerName>,
    ) -> bool {
        servers.any(|server| {
            let of = (key.clone(), server);
            self.bindings
                .part_of(&of)
                .get(&of)
                .is_some_and(|used| used.calls > 0)
        })
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
        if let Some(used) = self
            .active_bindings
            .bindings
            .part_of(&self.of)
            .get_mut(&self.of)
        {
            used.holder = Some(holder);
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut bindings = self.active_bindings.bindings.part_of(&self.of);
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
        assert!(active_bindings.bindings.parts().all(|part| part.is_empty()));
    }

    #[test]
    fn bindings_of_every_part_are_counted_once() {
        let active_bindings = ActiveBindings::new(Duration::from_secs(60));
        let begin = |number: u32| {
            let session = session(number.to_string().as_bytes());
            let call = active_bindings.begin(&session, &tools(), InFlightKind::Call);
            call.set_holder(BindingHolder::This);
            assert!(active_bindings.is_in_call(&session.key, [tools()].into_iter()));
            call
        };
        let calls: Vec<_> = (0..1_000).chain(0..1_000).map(begin).collect();
        let parts = active_bindings.bindings.parts();
        assert!(parts.filter(|part| !part.is_empty()).count() > 1);
        assert_eq!(active_bindings.in_call().len(), 1_000);
        drop(calls);
        assert_eq!(active_bindings.in_use(), []);
        assert_eq!(
            (active_bindings.count(), active_bindings.recent().len()),
            (1_000, 1_000)
        );
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
