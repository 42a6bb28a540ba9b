//! The sliding deadline against an exact model of the last use, over every touch step.

use mooring_session::Tuning;
use mooring_session::record::{Lifecycle, SessionLifetime, SessionState};
use mooring_session::time::Millis;

use crate::states::at;

/// Uses at irregular intervals up to just under the TTL: alive until exactly the TTL after the last use at least,
/// and expired one step later at most.
#[test]
fn a_session_expires_neither_early_nor_more_than_a_step_late() {
    for touch_step in [1, 2, 3, 16, 1000] {
        let tuning = Tuning {
            touch_step,
            ..Tuning::default()
        };
        for ttl in [1_000, 1_001, 16_000, 86_400_000] {
            let ttl = Millis::new(ttl);
            let step = ttl.get() / touch_step;
            let mut now = 1_000_000;
            let mut lifetime = SessionLifetime::begin(at(now), ttl, &tuning);
            for n in 0..200_u64 {
                now += (n * n * 7_919 + n) % ttl.get();
                let used = lifetime.state(at(now)) == SessionState::Active;
                assert!(
                    used,
                    "expired before {ttl} ms without use, step {touch_step}"
                );
                lifetime.slide(at(now), None, &tuning);
                let state = |later| lifetime.state(at(now + later));
                assert_eq!(state(ttl.get() - 1), SessionState::Active);
                assert_eq!(state(ttl.get() + step), SessionState::Expired);
            }
        }
    }
}

#[test]
fn a_records_time_does_not_run_backwards() {
    let tuning = Tuning::default();
    let mut lifetime = SessionLifetime::begin(at(1_000_000), Millis::new(16_000), &tuning);
    let before = lifetime;
    assert!(!lifetime.slide(at(10), None, &tuning));
    assert_eq!(lifetime, before);
    assert!(lifetime.slide(at(10), Some(Millis::new(32_000)), &tuning));
    assert_eq!(lifetime.last_used_at, before.last_used_at);
    assert_eq!(lifetime.expires_at, at(1_000_000 + 32_000 + 2_000));
}

#[test]
fn the_expiry_that_is_told_has_no_slack() {
    let tuning = Tuning::default();
    let (ttl, step) = (900_000, 900_000 / tuning.touch_step);
    let mut lifetime = SessionLifetime::begin(at(0), Millis::new(ttl), &tuning);
    assert_eq!(lifetime.reported_expiry(at(0)), at(ttl));
    assert_eq!(lifetime.reported_expiry(at(ttl - 1)), at(ttl));
    // Still there, perhaps because of uses that were not written: a moment in the past would be wrong.
    assert_eq!(lifetime.state(at(ttl)), SessionState::Active);
    assert_eq!(lifetime.reported_expiry(at(ttl)), at(ttl + step));
    assert_eq!(lifetime.reported_expiry(at(ttl + 2 * step)), at(ttl + step));
    assert!(lifetime.slide(at(step), None, &tuning));
    assert_eq!(lifetime.reported_expiry(at(step)), at(step + ttl));
}

#[test]
fn the_last_use_is_known_to_a_touch_step() {
    let tuning = Tuning::default();
    let mut lifetime = SessionLifetime::begin(at(0), Millis::new(16_000), &tuning);
    assert_eq!(lifetime.last_use_bounds(at(0), &tuning), [at(0), at(0)]);
    assert!(!lifetime.slide(at(999), None, &tuning));
    assert_eq!(lifetime.last_use_bounds(at(999), &tuning), [at(0), at(999)]);
    assert_eq!(
        lifetime.last_use_bounds(at(9_000), &tuning),
        [at(0), at(1_000)],
        "a later one would have been written"
    );
    assert!(lifetime.slide(at(1_000), None, &tuning));
    assert_eq!(
        lifetime.last_use_bounds(at(1_000), &tuning),
        [at(1_000), at(1_000)]
    );
    lifetime.lifecycle = Lifecycle::Ended;
    assert_eq!(
        lifetime.last_use_bounds(at(9_000), &tuning),
        [at(1_000), at(1_000)],
        "an end is written"
    );
}

/// A use moves the end of the key, and most uses leave it written as it is: never shorter than the tombstone.
#[test]
fn few_uses_write_when_the_key_expires() {
    let tuning = Tuning::default();
    let ttl = 160_000;
    let mut lifetime = SessionLifetime::begin(at(0), Millis::new(ttl), &tuning);
    let mut expiry = None;
    let (mut uses, mut writes) = (0, 0);
    for now in (0..4 * ttl).step_by(100) {
        uses += u64::from(lifetime.slide(at(now), None, &tuning));
        let end = lifetime.tombstone_ends_at(&tuning);
        if let Some(written) = lifetime.key_expiry(end, expiry) {
            expiry = Some(written);
            writes += 1;
        }
        assert!((end..=end.plus(Millis::new(ttl / 4))).contains(&expiry.unwrap()));
    }
    assert_eq!(uses, 63);
    assert!(writes * 4 <= uses, "{writes} of {uses}");
    // A shorter end is written, or the key would stay.
    let end = at(4 * ttl + 30_000);
    assert_eq!(
        lifetime.key_expiry(end, expiry),
        Some(end.plus(Millis::new(ttl / 4)))
    );
}

#[test]
fn the_tombstone_lasts_as_long_as_the_settings_say() {
    let tuning = Tuning {
        tombstone_ratio: 2,
        tombstone_min: Millis::new(20_000),
        touch_step: 16,
    };
    for (ttl, expected) in [(16_000, 17_000 + 20_000_u64), (160_000, 320_000)] {
        let lifetime = SessionLifetime::begin(at(0), Millis::new(ttl), &tuning);
        assert_eq!(
            lifetime.tombstone_ends_at(&tuning),
            at(expected),
            "ttl {ttl}"
        );
    }
}
