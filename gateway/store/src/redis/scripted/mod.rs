//! The store on a Redis without the module: the rules run in the gateway, over the same records.
//!
//! Records are the hashes that the module writes, so a fleet can move from one way to the other. Beside them are
//! [`keys`]: turns, events, heartbeats, and sorted sets as indexes. Everything is read and written by one [`script`], which
//! compares what was read with what is there before it writes ([`step`], [`attempts`]); [`turns`] and [`waiting`] order calls over all
//! gateways, with [`key_locks`] and [`planned_looks`]; [`gateways`] and [`fleet`] know who is alive; [`index`], [`listing`] and [`building`] find sessions;
//! [`values`] has the rest. [`admission`] notes restarts of the server. The clock is the server's, which all gateways
//! share.
//!
//! Invariant: a gateway decides, and the script refuses to write if another one has decided in between.

mod admission;
mod attempts;
mod building;
mod fleet;
mod gateways;
mod index;
mod key_locks;
mod keys;
mod listing;
mod planned_looks;
mod script;
mod step;
#[cfg(test)]
mod tests;
mod turns;
mod values;
mod waiting;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use mooring_session::clock::ClockWatch;
use mooring_session::index::Departures;

pub(super) use self::admission::Admission;
use self::gateways::KnownGateways;
use self::key_locks::KeyLocks;
use self::keys::Keys;
pub(super) use self::keys::indexed_key;
use self::planned_looks::PlannedLooks;
use self::step::Reads;
use super::link::Link;
use super::link_state::Resend;
use crate::clock::Clock;
use crate::error::StoreError;
use crate::key::{Family, SessionKey};
use crate::transition::{Access, Transition};

/// A Redis whose module is not used.
#[derive(Debug)]
pub(super) struct ScriptedStore {
    link: Arc<Link>,
    keys: Keys,
    admission: Arc<Admission>,
    gateways: Mutex<KnownGateways>,
    departures: Mutex<Departures>,
    locks: KeyLocks<SessionKey>,
    rate_locks: KeyLocks<String>,
    planned_looks: PlannedLooks,
    /// Where each family's next REAP continues.
    reaped_to: Mutex<HashMap<Family, usize>>,
    /// Whether the server's clock can be trusted.
    clock_watch: Mutex<ClockWatch>,
    clock: Clock,
}

impl ScriptedStore {
    pub(super) fn new(link: Arc<Link>, admission: Arc<Admission>, prefix: &str) -> Arc<Self> {
        let store = Arc::new(Self {
            link,
            keys: Keys::new(prefix),
            admission,
            gateways: Mutex::new(KnownGateways::new()),
            departures: Mutex::default(),
            locks: KeyLocks::default(),
            rate_locks: KeyLocks::default(),
            planned_looks: PlannedLooks::default(),
            reaped_to: Mutex::default(),
            clock_watch: Mutex::default(),
            clock: Clock::system(),
        });
        store.start_building();
        store
    }

    pub(super) async fn run<T: Transition>(
        &self,
        key: &SessionKey,
        request: &T,
        resend: Resend,
    ) -> Result<T::Reply, StoreError> {
        let reads = Reads {
            turns: T::ACCESS == Access::Writes,
            floor: T::ACCESS == Access::Writes,
            instances: (request.candidates())
                .map(|(server, instances)| (server.clone(), instances.to_vec())),
            principal: request.capped_principal().cloned(),
            ..Reads::default()
        };
        let _locked = match T::ACCESS {
            Access::Reads => None,
            Access::Writes => Some(self.locks.lock(key).await),
        };
        self.step(key, reads, resend, |step| step.decide(request))
            .await
    }
}
