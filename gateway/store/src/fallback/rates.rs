//! Rates in memory.
//!
//! Invariant: bounded.

use std::collections::HashMap;

use mooring_session::rules::{self, RateRequest, TheoreticalArrivalTime};
use mooring_session::time::Timestamp;

use crate::rate::RateReply;

/// Most rates. Beyond it those that expire first are dropped.
const RATES_MAX: usize = 10_000;

/// The rates of one process.
#[derive(Debug, Default)]
pub(super) struct Rates(HashMap<Box<str>, TheoreticalArrivalTime>);

impl Rates {
    pub(super) fn rate(&mut self, name: &str, request: &RateRequest, now: Timestamp) -> RateReply {
        let rated = rules::rate(self.0.get(name).copied(), request, now);
        if let Some(written) = rated.written {
            if self.0.len() >= RATES_MAX && !self.0.contains_key(name) {
                self.make_room(now);
            }
            self.0.insert(name.into(), written);
        }
        RateReply::of(rated)
    }

    fn make_room(&mut self, now: Timestamp) {
        self.0.retain(|_, spent| now < spent.expires_at());
        if self.0.len() < RATES_MAX {
            return;
        }
        let first = self.0.iter().min_by_key(|(_, spent)| spent.expires_at());
        if let Some(name) = first.map(|(name, _)| name.clone()) {
            self.0.remove(&name);
        }
    }
}

#[cfg(test)]
mod tests {
    use mooring_session::time::Millis;

    use super::*;

    #[test]
    fn a_process_never_remembers_more_rates_than_its_bound() {
        let mut rates = Rates::default();
        let request = RateRequest {
            limit: 1,
            window: Millis::new(60_000),
            cost: 1,
        };
        let now = Timestamp::from_unix_ms(1_700_000_000_000);
        for n in 0..=RATES_MAX as u64 {
            let at = now.plus(Millis::new(n));
            assert!(rates.rate(&format!("r{n}"), &request, at).allowed);
        }
        assert_eq!(rates.0.len(), RATES_MAX);
        // The first one made room, and all others hold.
        assert!(!rates.rate("r1", &request, now).allowed);
        assert!(rates.rate("r0", &request, now).allowed);
    }
}
