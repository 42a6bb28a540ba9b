//! END and KILL: the session is over for everybody, and its bindings stay for the cleaning.

use mooring_session::Refusal;
use mooring_session::rules::{EndCondition, EndRequest};

use crate::states::{NOW, State, at, claim_by, create, end, route_by};
use crate::support::{Command, principal};
use crate::{check, describe, run, run_on, run_while_turn_held};

#[test]
fn ends_what_is_in_use() {
    let rows = [
        (State::Absent, "NOSESSION"),
        (State::Active, "ended 1 bindings 0, record"),
        (State::Expired, "NOSESSION"),
        (State::ExpiredBound, "NOSESSION"),
        (State::Ended, "ended 0 bindings 0, nothing"),
        (State::EndedBound, "ended 0 bindings 1, nothing"),
        (State::Claimed, "ended 1 bindings 1, record"),
        (State::Bound, "ended 1 bindings 1, record"),
        (State::Owned, "ended 1 bindings 1, record"),
    ];
    check(&end(), &rows);
    let kill = Command::End(EndRequest {
        principal: None,
        when: EndCondition::Always,
    });
    check(&kill, &rows);
}

#[test]
fn ifidle_spares_a_session_that_is_being_bound() {
    let idle = Command::End(EndRequest {
        principal: Some(principal("alice")),
        when: EndCondition::Idle,
    });
    check(
        &idle,
        &[
            (State::Active, "ended 1 bindings 0, record"),
            (State::Claimed, "BUSY"),
            (State::Lapsed, "ended 1 bindings 1, record"),
            (State::Bound, "ended 1 bindings 1, record"),
            (State::EndedBound, "ended 0 bindings 1, nothing"),
        ],
    );
}

#[test]
fn ifidle_spares_a_session_that_has_a_turn() {
    let idle = EndRequest {
        principal: Some(principal("alice")),
        when: EndCondition::Idle,
    };
    let always = EndRequest {
        when: EndCondition::Always,
        ..idle.clone()
    };
    for (request, state, expected) in [
        (&idle, State::Active, "BUSY"),
        (&idle, State::Bound, "BUSY"),
        (&idle, State::EndedBound, "ended 0 bindings 1, nothing"),
        (&always, State::Bound, "ended 1 bindings 1, record"),
    ] {
        let (_, outcome) = run_while_turn_held("other", &Command::End(request.clone()), state);
        assert_eq!(describe(&outcome), expected, "{request:?} on {state:?}");
    }
}

#[test]
fn an_ended_session_stays_ended() {
    let (mut slot, _) = run(&end(), State::Bound);
    for later in [NOW, NOW + 30_000, NOW + 10_000_000] {
        assert_eq!(
            run_on(&mut slot, &route_by("caller:1"), later),
            Err(Refusal::Ended)
        );
    }
}

#[test]
fn whoever_ended_it_has_half_a_minute_for_the_cleaning() {
    let (mut slot, _) = run(&end(), State::Bound);
    let code = |outcome: crate::Outcome| outcome.map_err(|refusal| refusal.code()).err();
    let outcome = run_on(&mut slot, &claim_by("reaper:1"), NOW + 29_999);
    assert_eq!(code(outcome), Some("BUSY"));
    let outcome = run_on(&mut slot, &claim_by("reaper:1"), NOW + 30_000);
    assert_eq!(code(outcome), None);
}

/// Otherwise a key with the shortest tombstone could be dropped in the millisecond of its END, and what is created
/// there next would repeat its epochs.
#[test]
fn a_tombstone_outlasts_the_last_number_given() {
    use mooring_session::Tuning;
    use mooring_session::time::Millis;
    let tuning = Tuning {
        tombstone_ratio: 1,
        tombstone_min: Millis::new(0),
        touch_step: 1,
    };
    let mut slot = None;
    let context = |now| crate::context(now, &tuning);
    let key = crate::states::KEY;
    create().run(&mut slot, key, &context(NOW)).unwrap();
    let used_last = NOW + crate::states::TTL.get() - 1;
    end().run(&mut slot, key, &context(used_last)).unwrap();
    let ends_at = slot.unwrap().tombstone_ends_at(&tuning);
    assert!(ends_at.unix_ms() >= used_last + crate::states::TTL.get());
}

/// A tombstone is for cleaning up, and for a caller that asks END again.
#[test]
fn a_tombstone_that_holds_nothing_goes_soon() {
    let tuning = mooring_session::Tuning::default();
    for (state, goes_soon) in [(State::Active, true), (State::Bound, false)] {
        let (slot, _) = run(&end(), state);
        let record = slot.unwrap();
        let ends_at = record.tombstone_ends_at(&tuning);
        let soon = at(NOW).plus(mooring_session::limits::EMPTY_TOMBSTONE);
        assert_eq!(ends_at <= soon, goes_soon, "{state:?}: {ends_at}");
        assert!(ends_at > at(NOW), "END can be said again");
    }
}
