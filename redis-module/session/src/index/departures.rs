//! Instances that sessions were just moved away from: such an instance counts as fuller for a while.
//!
//! It needs no record, so it also works while the index is incomplete.

use std::collections::{BTreeMap, VecDeque};

use crate::limits::{DEPARTURE_LASTS, DEPARTURES_MAX};
use crate::names::{InstanceName, ServerName};
use crate::time::Monotonic;

/// The instances that sessions left recently. Bounded: if there are too many, the earliest are forgotten before their
/// time.
#[derive(Debug, Default)]
pub struct Departures {
    /// Until when an instance counts as fuller.
    until: BTreeMap<ServerName, BTreeMap<InstanceName, Monotonic>>,
    /// Every departure, the earliest first.
    left: VecDeque<(Monotonic, ServerName, InstanceName)>,
}

impl Departures {
    /// What is added to the bindings of an instance that was just left.
    pub const FULLNESS: u64 = 1 << 32;

    /// Records that a session was moved away from an instance.
    pub fn note(&mut self, server: &ServerName, instance: &InstanceName, mono: Monotonic) {
        let until = mono.plus(DEPARTURE_LASTS);
        let instances = self.until.entry(server.clone()).or_default();
        instances.insert(instance.clone(), until);
        self.left
            .push_back((until, server.clone(), instance.clone()));
        while let Some((end, ..)) = self.left.front()
            && (*end <= mono || self.left.len() > DEPARTURES_MAX)
        {
            self.forget_first();
        }
    }

    /// How much fuller an instance counts: [`FULLNESS`](Self::FULLNESS), or nothing.
    #[must_use]
    pub fn fullness(&self, server: &ServerName, instance: &InstanceName, mono: Monotonic) -> u64 {
        let until = self
            .until
            .get(server)
            .and_then(|instances| instances.get(instance));
        match until {
            Some(until) if mono < *until => Self::FULLNESS,
            _ => 0,
        }
    }

    fn forget_first(&mut self) {
        let Some((end, server, instance)) = self.left.pop_front() else {
            return;
        };
        let Some(instances) = self.until.get_mut(&server) else {
            return;
        };
        // Another session may have left it since.
        if instances.get(&instance) == Some(&end) {
            instances.remove(&instance);
        }
        if instances.is_empty() {
            self.until.remove(&server);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    fn server(name: &str) -> ServerName {
        ServerName::parse(name.as_bytes()).unwrap()
    }

    fn instance(name: &str) -> InstanceName {
        InstanceName::parse(name.as_bytes()).unwrap()
    }

    #[test]
    fn an_instance_counts_as_fuller_for_thirty_seconds_after_the_last_departure() {
        let mut departures = Departures::default();
        let fullness = |departures: &Departures, server_name, name, ms| {
            departures.fullness(
                &server(server_name),
                &instance(name),
                Monotonic::from_ms(ms),
            )
        };
        departures.note(&server("a"), &instance("1"), Monotonic::from_ms(1_000));
        assert_eq!(
            fullness(&departures, "a", "1", 30_999),
            Departures::FULLNESS
        );
        assert_eq!(fullness(&departures, "a", "1", 31_000), 0);
        assert_eq!(fullness(&departures, "b", "1", 1_000), 0);
        assert_eq!(fullness(&departures, "a", "2", 1_000), 0);
        departures.note(&server("a"), &instance("1"), Monotonic::from_ms(20_000));
        departures.note(&server("a"), &instance("2"), Monotonic::from_ms(32_000));
        assert_eq!(
            fullness(&departures, "a", "1", 49_999),
            Departures::FULLNESS
        );
        departures.note(&server("b"), &instance("1"), Monotonic::from_ms(100_000));
        assert_eq!((departures.left.len(), departures.until.len()), (1, 1));
    }

    #[test]
    fn the_number_of_departures_is_bounded() {
        let mut departures = Departures::default();
        for n in 0..DEPARTURES_MAX + 10 {
            let name = instance(&n.to_string());
            departures.note(&server("a"), &name, Monotonic::from_ms(5));
        }
        assert_eq!(departures.left.len(), DEPARTURES_MAX);
        let instances = departures.until.get(&server("a")).unwrap();
        assert_eq!(instances.len(), DEPARTURES_MAX);
        assert!(!instances.contains_key(&instance("9")));
        assert!(instances.contains_key(&instance("10")));
    }
}
