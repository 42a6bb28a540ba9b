//! Servers that did not answer in time: remembered for all callers of this gateway, for longer than they were waited for.
//!
//! Invariant: while a server is remembered as late, callers wait only briefly for it, and requests are still sent. Its
//! first answer in time ends this, so that a recovered server is used again at once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a server that did not answer lately is waited for: one that is back answers within this time. It is more than
/// nothing because one caller's requests may hang where those of others are answered.
const WAIT_WHILE_LATE: Duration = Duration::from_millis(250);
/// How long a server is remembered that did not answer once; twice as long each further time.
const REMEMBERED_FIRST: Duration = Duration::from_secs(60);
/// See [`REMEMBERED_FIRST`]. After that a caller waits for the server again.
const REMEMBERED_MAX: Duration = Duration::from_secs(15 * 60);

/// Whether one server answers in time.
#[derive(Debug, Default)]
pub struct Lateness {
    /// Whether `late` is set.
    is_late: AtomicBool,
    late: Mutex<Option<LateSince>>,
}

#[derive(Debug)]
struct LateSince {
    /// How often in a row it was waited for in vain.
    times: u32,
    /// Until then it is waited for only briefly.
    until: Instant,
}

impl Lateness {
    /// How long an answer is waited for, `limit` at most. Of callers that come when a server was remembered for long enough,
    /// one waits for as long as `limit`.
    #[must_use]
    pub fn wait(&self, limit: Duration, now: Instant) -> Duration {
        if !self.is_late.load(Ordering::Relaxed) {
            return limit;
        }
        match self.late().as_mut() {
            Some(late) if now < late.until => WAIT_WHILE_LATE.min(limit),
            Some(late) => {
                late.until = now + limit;
                limit
            }
            None => limit,
        }
    }

    /// Records that it did not answer within the wait that ends `now`.
    pub fn note_late(&self, now: Instant) {
        let mut late = self.late();
        let times = match late.as_ref() {
            // Others have waited at the same time, or only briefly.
            Some(late) if now < late.until => return,
            Some(late) => late.times.saturating_add(1),
            None => 1,
        };
        let doubled = REMEMBERED_FIRST.saturating_mul(2_u32.saturating_pow(times - 1));
        let until = now + doubled.min(REMEMBERED_MAX);
        *late = Some(LateSince { times, until });
        self.is_late.store(true, Ordering::Relaxed);
    }

    /// Records that it answered.
    pub fn note_answer(&self) {
        if self.is_late.load(Ordering::Relaxed) {
            let mut late = self.late();
            *late = None;
            self.is_late.store(false, Ordering::Relaxed);
        }
    }

    fn late(&self) -> MutexGuard<'_, Option<LateSince>> {
        self.late.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    #[test]
    fn a_server_that_hangs_is_waited_for_once_and_then_ever_more_rarely() {
        let (lateness, start) = (Lateness::default(), Instant::now());
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        assert_eq!(lateness.wait(LIMIT, at(0)), LIMIT);
        assert_eq!(lateness.wait(LIMIT, at(0)), LIMIT, "nothing is known yet");
        lateness.note_late(at(10));
        lateness.note_late(at(10));
        for seconds in [10, 40, 69] {
            assert_eq!(lateness.wait(LIMIT, at(seconds)), WAIT_WHILE_LATE);
            lateness.note_late(at(seconds));
        }
        assert_eq!(lateness.wait(LIMIT, at(70)), LIMIT);
        assert_eq!(lateness.wait(LIMIT, at(70)), WAIT_WHILE_LATE, "one waits");
        lateness.note_late(at(80));
        assert_eq!(lateness.wait(LIMIT, at(199)), WAIT_WHILE_LATE);
        assert_eq!(lateness.wait(LIMIT, at(200)), LIMIT, "two minutes");
        lateness.note_answer();
        assert_eq!(lateness.wait(LIMIT, at(201)), LIMIT);
    }

    #[test]
    fn what_is_remembered_has_a_limit() {
        let (lateness, mut now) = (Lateness::default(), Instant::now());
        for _ in 0..100 {
            lateness.note_late(now);
            now += REMEMBERED_MAX;
            assert_eq!(lateness.wait(LIMIT, now), LIMIT);
            now += LIMIT;
        }
    }
}
