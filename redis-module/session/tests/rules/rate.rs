//! RATE: the figures of the generic cell rate algorithm, request by request.

use mooring_session::limits::{RATE_LIMIT_MAX, RATE_WINDOW_MAX, RATE_WINDOW_MIN};
use mooring_session::rules::{RateRequest, TheoreticalArrivalTime, rate};
use mooring_session::time::Millis;

use crate::states::{NOW, at};

fn limit(limit: u64, window_ms: u64) -> RateRequest {
    RateRequest {
        limit,
        window: Millis::new(window_ms),
        cost: 1,
    }
}

/// Says the request at each moment after [`NOW`], and compares whether it was let through, what remains, and when to
/// come again.
#[track_caller]
fn check(rows: &[(u64, RateRequest, (bool, u64, u64))]) {
    let mut stored = None;
    for (row, (after, request, expected)) in rows.iter().enumerate() {
        let rated = rate(stored, request, at(NOW + after));
        let allowed = rated.is_allowed;
        let seen = (allowed, rated.remaining, rated.retry_after.get());
        assert_eq!(seen, *expected, "row {row}: {request:?} after {after} ms");
        stored = rated.written.or(stored);
    }
}

#[test]
fn the_limit_passes_at_once_and_then_one_for_each_share_of_the_window() {
    let ten_a_second = limit(10, 1_000);
    check(&[
        (0, ten_a_second, (true, 9, 0)),
        (
            0,
            RateRequest {
                cost: 8,
                ..ten_a_second
            },
            (true, 1, 0),
        ),
        (0, ten_a_second, (true, 0, 0)),
        (0, ten_a_second, (false, 0, 100)),
        (60, ten_a_second, (false, 0, 40)),
        (100, ten_a_second, (true, 0, 0)),
        (199, ten_a_second, (false, 0, 1)),
        (200, ten_a_second, (true, 0, 0)),
        (700, ten_a_second, (true, 4, 0)),
        (
            700,
            RateRequest {
                cost: 5,
                ..ten_a_second
            },
            (false, 4, 100),
        ),
        (
            700,
            RateRequest {
                cost: 4,
                ..ten_a_second
            },
            (true, 0, 0),
        ),
        (10_000, ten_a_second, (true, 9, 0)),
    ]);
}

#[test]
fn the_whole_limit_fits_where_its_shares_are_no_whole_numbers() {
    for (count, window_ms) in [(3, 1_000), (7, 1), (7_000, 1_000)] {
        let request = limit(count, window_ms);
        let mut stored = None;
        for n in 0..count {
            let rated = rate(stored, &request, at(NOW));
            assert!(rated.is_allowed, "{count}: refused after {n}");
            stored = rated.written;
        }
        let refused = rate(stored, &request, at(NOW));
        assert_eq!((refused.written, refused.remaining), (None, 0), "{count}");
        assert!(refused.retry_after.get() >= 1);
    }
}

/// Over a long time exactly the limit passes for every window, however the requests come, and at most twice the limit
/// within any one.
#[test]
fn no_more_than_the_rate_passes() {
    let request = limit(20, 1_000);
    for every_ms in [1, 3, 7, 49] {
        let mut stored = None;
        let mut passed = 0;
        for n in 0..10_000 / every_ms {
            let rated = rate(stored, &request, at(NOW + n * every_ms));
            passed += u64::from(rated.is_allowed);
            stored = rated.written.or(stored);
        }
        assert!((200..=220).contains(&passed), "{every_ms}: {passed}");
    }
}

#[test]
fn a_clock_that_was_set_back_refuses_nobody_for_longer_than_a_window() {
    let request = limit(10, 1_000);
    let whole = RateRequest {
        cost: 10,
        ..request
    };
    let ahead = rate(None, &request, at(NOW + 3_600_000)).written;
    let refused = rate(ahead, &request, at(NOW));
    assert_eq!(
        (refused.is_allowed, refused.retry_after.get()),
        (false, 100)
    );
    assert_eq!(
        refused.written.unwrap().expires_at(),
        at(NOW + 1_000),
        "nothing is forgotten before a window has passed"
    );
    // After that the figures are as ever.
    let mut stored = refused.written;
    for (after, request, expected) in [
        (100, request, true),
        (100, request, false),
        (1_100, whole, true),
    ] {
        let rated = rate(stored, &request, at(NOW + after));
        assert_eq!(rated.is_allowed, expected, "after {after} ms");
        stored = rated.written.or(stored);
    }
}

/// A rate of one for a window remembers something for that window, such as a proof that may be used once.
#[test]
fn a_narrower_window_does_not_shorten_what_was_stored_for_a_wider_one() {
    let (wide, narrow) = (limit(1, 60_000), limit(1, 1_000));
    let whole = rate(None, &wide, at(NOW)).written.unwrap();
    let refused = rate(Some(whole), &narrow, at(NOW));
    assert!(!refused.is_allowed);
    let stored = refused.written.unwrap_or(whole);
    assert_eq!(stored.expires_at(), at(NOW + 60_000));
    assert!(!rate(Some(stored), &wide, at(NOW + 2_000)).is_allowed);
    assert_eq!(refused.retry_after.get(), 60_000);
    // Where part of the narrow one is left, what passes is added.
    let (wide, narrow) = (limit(60, 60_000), limit(10, 2_000));
    let part = rate(None, &wide, at(NOW)).written.unwrap();
    let passed = rate(Some(part), &narrow, at(NOW));
    assert!(passed.is_allowed);
    assert_eq!(passed.written.unwrap().expires_at(), at(NOW + 1_200));
    // A clock that is set back still delays nobody for longer than the widest window.
    let ahead = rate(None, &limit(1, 60_000), at(NOW + 3_600_000)).written;
    let back = rate(ahead, &limit(1, 1_000), at(NOW)).written.unwrap();
    assert_eq!(back.expires_at(), at(NOW + 60_000));
    // Once everything is spent, the window is that of the request again.
    let later = rate(Some(whole), &limit(1, 1_000), at(NOW + 60_000));
    assert_eq!(later.written.unwrap().expires_at(), at(NOW + 61_000));
}

#[test]
fn the_record_ends_when_it_says_nothing_any_more() {
    let spent = rate(None, &limit(3, 1_000), at(NOW)).written.unwrap();
    assert_eq!(spent.expires_at(), at(NOW + 334));
    assert_eq!(
        TheoreticalArrivalTime::decode(spent.encode().as_bytes()),
        Ok(spent)
    );
    let without_window = TheoreticalArrivalTime::decode(b"1700000000000000000").unwrap();
    assert_eq!(without_window.encode(), "1700000000000000000 0");
    let corrupt = [
        "",
        "-1",
        "1.5",
        "abc",
        "18446744073709551616",
        " 1",
        "01",
        "1 ",
        "1 x",
        "1 2 3",
        "1 99999999999",
    ];
    for corrupt in corrupt {
        assert!(
            TheoreticalArrivalTime::decode(corrupt.as_bytes()).is_err(),
            "{corrupt:?}"
        );
    }
}

#[test]
fn the_limits_do_not_overflow() {
    for window in [RATE_WINDOW_MIN, RATE_WINDOW_MAX] {
        for count in [1, RATE_LIMIT_MAX] {
            for now in [0, NOW, u64::MAX] {
                let request = RateRequest {
                    limit: count,
                    window,
                    cost: count,
                };
                let rated = rate(
                    Some(TheoreticalArrivalTime::decode(b"18446744073709551615").unwrap()),
                    &request,
                    at(now),
                );
                assert!(rated.remaining <= count);
            }
        }
    }
}
