//! Short ways to say records, and a fleet in which some are alive.

use std::collections::BTreeSet;

use mooring_session::index::{PrefixId, Prefixes, Seed};
use mooring_session::names::{ContentHash, WorkerId};
use mooring_session::record::{Binding, Cleaning, Lifecycle, Phase, Record, SessionLifetime};
use mooring_session::time::{Millis, Timestamp};
use mooring_session::{Liveness, Tuning};

use crate::support::{instance, principal, server, session_id, token, worker};

pub(crate) const SEED: Seed = Seed([7, 11]);
pub(crate) const TTL: Millis = Millis::new(10_000);

pub(crate) fn at(ms: u64) -> Timestamp {
    Timestamp::from_unix_ms(ms)
}

/// Two prefixes, of which one begins with the other.
pub(crate) fn prefixes() -> Prefixes {
    Prefixes::new([&b"mcpgw:"[..], b"mcpgw:code:"]).unwrap()
}

pub(crate) fn prefix_of(key: &[u8]) -> PrefixId {
    prefixes().of(key).unwrap()
}

/// An active session of `owner`, last used at `now`, without bindings.
pub(crate) fn session(owner: &str, now: u64) -> Record {
    let tuning = Tuning::default();
    Record {
        id: session_id("id"),
        principal: principal(owner),
        generation: 1,
        highest_epoch: 1,
        lifetime: SessionLifetime::begin(at(now), TTL, &tuning),
        content_hash: None,
        labels: std::collections::BTreeMap::default(),
        bindings: std::collections::BTreeMap::default(),
        cleaning: None,
    }
}

/// Changes of a record, for building one.
pub(crate) trait Edit: Sized {
    fn bound(self, to: &str, at: &str, driver: &str, owner: Option<&str>) -> Self;
    fn claimed_until(self, until: u64) -> Self;
    fn cleaned_until(self, until: u64) -> Self;
    fn mounted(self) -> Self;
    fn ended(self) -> Self;
}

impl Edit for Record {
    fn bound(mut self, to: &str, place: &str, driver: &str, owner: Option<&str>) -> Self {
        let binding = Binding {
            phase: Phase::Bound,
            instance: instance(place),
            upstream_session: None,
            owner: owner.map(worker),
            driver: worker(driver),
            epoch: 1,
            bound_at: self.lifetime.created_at,
            rebinds: 0,
            last_reason: None,
            token: token("t"),
            previous: None,
            unreported_loss: None,
        };
        self.bindings.insert(server(to), binding);
        self
    }

    fn claimed_until(mut self, until: u64) -> Self {
        for binding in self.bindings.values_mut() {
            binding.phase = Phase::Claimed {
                lease_until: at(until),
            };
        }
        self
    }

    fn cleaned_until(mut self, until: u64) -> Self {
        self.cleaning = Some(Cleaning {
            worker: None,
            lease_until: at(until),
        });
        self
    }

    fn mounted(mut self) -> Self {
        self.content_hash = Some(ContentHash::parse(b"abc").unwrap());
        self
    }

    fn ended(mut self) -> Self {
        self.lifetime.lifecycle = Lifecycle::Ended;
        self.lifetime.expires_at = self.lifetime.last_used_at;
        self
    }
}

/// Who is alive.
pub(crate) struct Crew(pub(crate) BTreeSet<WorkerId>);

impl Crew {
    pub(crate) fn of(alive: &[&str]) -> Self {
        Self(alive.iter().map(|name| worker(name)).collect())
    }
}

impl Liveness for Crew {
    fn is_alive(&self, worker: &str) -> bool {
        self.0.iter().any(|known| known.as_str() == worker)
    }

    fn is_draining(&self, _: &str) -> bool {
        false
    }

    fn address(&self, _: &str) -> Option<&str> {
        None
    }
}
