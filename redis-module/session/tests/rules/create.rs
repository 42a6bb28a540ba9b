//! CREATE: begins an incarnation or finds one, and never repeats a generation.

use std::collections::BTreeMap;

use mooring_session::codec::BorrowedRecord;
use mooring_session::limits::{LABELS_MAX, TURN_NUMBER_MAX};
use mooring_session::names::{ContentHash, LabelName, LabelValue};
use mooring_session::record::{Record, SessionState};
use mooring_session::rules::{self, CreateRequest, Revival};
use mooring_session::time::Millis;
use mooring_session::{Context, NoIndex, Tuning};

use crate::states::{Crew, NOW, State, a_create, at, create, end, number_at, slot_in};
use crate::support::{Command, Reply, session_id};
use crate::{check, describe, run, run_on};

#[test]
fn creates_or_finds() {
    check(
        &create(),
        &[
            (State::Absent, "created 1 generation +0 previous 0, record"),
            (
                State::Active,
                "created 0 generation -500 previous 0, nothing",
            ),
            (
                State::Bound,
                "created 0 generation -500 previous 0, nothing",
            ),
            (
                State::Expired,
                "created 1 generation -19999.999 previous 0, record",
            ),
            (
                State::ExpiredBound,
                "created 1 generation -19999.999 previous 1, record",
            ),
            (
                State::Ended,
                "created 1 generation -499.999 previous 0, record",
            ),
            (
                State::EndedBound,
                "created 1 generation -499.999 previous 1, record",
            ),
            (
                State::Cleaned,
                "created 1 generation -499.999 previous 1, record",
            ),
        ],
    );
}

#[test]
fn a_new_incarnation_tells_what_it_began_on() {
    for (state, revived) in [
        (State::Absent, None),
        (State::Active, None),
        (State::Bound, None),
        (State::Expired, Some(SessionState::Expired)),
        (State::ExpiredBound, Some(SessionState::Expired)),
        (State::Ended, Some(SessionState::Ended)),
        (State::EndedBound, Some(SessionState::Ended)),
        (State::Cleaned, Some(SessionState::Ended)),
    ] {
        let (mut slot, outcome) = run(&create(), state);
        let Reply::Create(reply) = outcome.unwrap().reply else {
            panic!("CREATE answers as CREATE does");
        };
        assert_eq!(reply.revived, revived, "{state:?}");
        // Whoever comes next finds it, and revives nothing.
        let Reply::Create(reply) = run_on(&mut slot, &create(), NOW).unwrap().reply else {
            panic!("CREATE answers as CREATE does");
        };
        assert_eq!(reply.revived, None, "{state:?}");
    }
}

#[test]
fn norevive_leaves_a_tombstone_standing() {
    let command = Command::Create(CreateRequest {
        revival: Revival::Refused,
        ..a_create()
    });
    check(
        &command,
        &[
            (State::Absent, "created 1 generation +0 previous 0, record"),
            (
                State::Active,
                "created 0 generation -500 previous 0, nothing",
            ),
            (State::Expired, "NOSESSION"),
            (State::EndedBound, "ENDED"),
        ],
    );
}

#[test]
fn another_ttl_is_always_written() {
    let command = Command::Create(CreateRequest {
        ttl: Millis::new(32_000),
        ..a_create()
    });
    check(
        &command,
        &[(
            State::Bound,
            "created 0 generation -500 previous 0, lifetime",
        )],
    );
}

#[test]
fn another_id_under_the_key_is_refused() {
    let command = Command::Create(CreateRequest {
        id: session_id("s2"),
        ..a_create()
    });
    check(
        &command,
        &[
            (State::Active, "ERR"),
            (State::Expired, "ERR"),
            (State::Ended, "ERR"),
        ],
    );
}

#[test]
fn a_new_incarnation_keeps_nothing_but_the_highest_epoch() {
    let (slot, _) = run(&create(), State::Cleaned);
    let (record, old) = (slot.unwrap(), slot_in(State::Cleaned).unwrap());
    assert!(record.bindings.is_empty());
    assert_eq!(record.cleaning, None);
    assert_eq!(record.lifetime.state(at(NOW)), SessionState::Active);
    assert_eq!(record.highest_epoch, old.highest_epoch);
}

#[test]
fn a_forgotten_key_created_in_the_same_millisecond_goes_on_above_its_floor() {
    let tuning = Tuning::default();
    let context = Context {
        now: at(NOW),
        floor: number_at(NOW) + 7,
        tuning: &tuning,
        workers: &Crew,
        node: &NoIndex,
    };
    let mut slot = None;
    let created = rules::create(&mut slot, &a_create(), &context).unwrap();
    assert_eq!(created.reply.record.generation, number_at(NOW) + 8);
    assert_eq!(slot.unwrap().highest_epoch, number_at(NOW) + 7);
}

/// An edited record, say: its numbers are its own key's alone.
#[test]
fn the_floor_follows_the_numbers_of_a_record_up_to_a_day_ahead() {
    let tuning = Tuning::default();
    let context = crate::context(NOW, &tuning);
    let latest = number_at(NOW + 86_400_000);
    for (number, floor) in [
        (number_at(NOW), 0),
        (latest, latest),
        (latest + 1, 0),
        (TURN_NUMBER_MAX, 0),
        (u64::MAX, 0),
    ] {
        let record = slot_in(State::Active).unwrap();
        for record in [
            Record {
                generation: number,
                ..record.clone()
            },
            Record {
                highest_epoch: number,
                ..record
            },
        ] {
            let followed = record.numbers_to_follow(context.now);
            assert_eq!(context.floor_after(Some(followed)), floor, "{number}");
            assert_eq!(
                BorrowedRecord::of(&record).numbers_to_follow(context.now),
                followed
            );
        }
    }
}

#[test]
fn a_record_revived_after_the_clock_stepped_back_lives_on_in_its_own_time() {
    let mut slot = slot_in(State::Active);
    run_on(&mut slot, &end(), NOW).unwrap();
    run_on(&mut slot, &create(), NOW - 900_000).unwrap();
    let record = slot.unwrap();
    assert!(
        record.lifetime.created_at >= at(NOW),
        "a new incarnation began before the old one ended"
    );
    assert!(
        record
            .lifetime
            .tombstone_ends_at(&Tuning::default())
            .least_number()
            > record.generation,
        "the key would be dropped, and its numbers forgotten, while they are ahead of the clock"
    );
}

#[test]
fn the_content_hash_is_compared_and_not_set() {
    let hash = |text: &str| ContentHash::parse(text.as_bytes()).unwrap();
    let with = |text: &str| {
        Command::Create(CreateRequest {
            content_hash: Some(hash(text)),
            ..a_create()
        })
    };
    let mut slot = None;
    run_on(&mut slot, &with("h1"), NOW).unwrap();
    for (given, expected) in [(with("h1"), false), (with("h2"), true), (create(), false)] {
        let Reply::Create(reply) = run_on(&mut slot, &given, NOW).unwrap().reply else {
            panic!("CREATE answers as CREATE does");
        };
        assert_eq!(reply.hash_changed, expected, "{given:?}");
        assert_eq!(reply.record.content_hash, Some(hash("h1")));
    }
}

#[test]
fn labels_have_a_limit() {
    let with = |count: usize| {
        let labels: BTreeMap<_, _> = (0..count)
            .map(|n| {
                let name = LabelName::parse(format!("l{n}").as_bytes()).unwrap();
                (name, LabelValue::parse(b"v").unwrap())
            })
            .collect();
        Command::Create(CreateRequest {
            labels,
            ..a_create()
        })
    };
    let (slot, _) = run(&with(LABELS_MAX), State::Absent);
    assert_eq!(slot.unwrap().labels.len(), LABELS_MAX);
    let (slot, outcome) = run(&with(LABELS_MAX + 1), State::Absent);
    assert_eq!((slot, describe(&outcome).as_str()), (None, "LIMIT"));
}
