//! How many files a minute what a client is refused may cost.
//!
//! Refusals come before the rate limit of runs, or from it, so that nothing else bounds them.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use mooring_session::names::ServerName;

/// Most events and blocked runs that one gateway records of one server in a minute.
const ADMITTED_MAX: u32 = 1_000;
/// Over this time they are counted.
const WINDOW: Duration = Duration::from_secs(60);

/// Limits how many events are recorded per server and interval.
#[derive(Debug, Default)]
pub(super) struct EventRateLimit(Mutex<HashMap<ServerName, (Instant, u32)>>);

impl EventRateLimit {
    /// Whether one more may be recorded; the servers are those of the settings, so the map is as long as they are many.
    pub(super) fn admits(&self, server: &ServerName) -> bool {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, count) = counts
            .entry(server.clone())
            .or_insert_with(|| (Instant::now(), 0));
        if since.elapsed() >= WINDOW {
            (*since, *count) = (Instant::now(), 0);
        }
        *count = count.saturating_add(1);
        *count <= ADMITTED_MAX
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    #[test]
    fn each_server_has_its_own_share() {
        let flood = EventRateLimit::default();
        let (one, other) = (
            ServerName::parse(b"one").unwrap(),
            ServerName::parse(b"other").unwrap(),
        );
        let admitted = (0..2 * ADMITTED_MAX).filter(|_| flood.admits(&one)).count();
        assert_eq!(admitted, ADMITTED_MAX as usize);
        assert!(flood.admits(&other));
    }
}
