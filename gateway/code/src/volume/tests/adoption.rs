//! Which directories go on, and which begin anew: the rule as a table, and on the disk.

use super::super::decide::{Decision, decide};
use super::super::stamp::Stamp;
use super::super::{Incarnation, Opening, SessionOpenError, unix_now_ms};
use super::*;

const NOW: u64 = 10_000_000;
const TTL_MS: u64 = 900_000;
/// A generation that a new key got from the clock, long ago.
const BEGAN: u64 = 5_000_000;

fn stamp(generation: u64, used_at_ms: u64, used_while_away: bool) -> Stamp {
    Stamp {
        generation,
        content_hash: Some(nothing(&place_of("alice")).content_hash().clone()),
        used_at_ms,
        ttl_ms: Some(TTL_MS),
        used_while_away,
    }
}

#[test]
fn a_directory_goes_on_where_its_session_is_not_over() {
    use Decision::{Adopt, BeginAnew, Keep, Superseded};
    let used = NOW - 1_000;
    let idle = NOW - TTL_MS;
    let unread = |used_at_ms| Stamp {
        used_at_ms,
        ..Stamp::BLANK
    };
    let outranking = |generation| Incarnation::Recorded {
        generation,
        created_at_ms: NOW,
        is_new_key: generation >= NOW,
        outranks: Some(NOW + 5),
    };
    let cases = [
        (
            "the same",
            stamp(BEGAN, used, false),
            recorded(BEGAN, BEGAN),
            Keep,
        ),
        (
            "the same, idle: the store says it is not over",
            stamp(BEGAN, idle, false),
            recorded(BEGAN, BEGAN),
            Keep,
        ),
        (
            "the same, used while away",
            stamp(BEGAN, used, true),
            recorded(BEGAN, BEGAN),
            Keep,
        ),
        (
            "revived after it expired",
            stamp(BEGAN, idle, false),
            recorded(BEGAN + 1, NOW),
            BeginAnew,
        ),
        (
            "revived after it was ended, in use until then",
            stamp(BEGAN, used, false),
            recorded(BEGAN + 1, NOW),
            BeginAnew,
        ),
        (
            "revived twice",
            stamp(BEGAN, used, false),
            recorded(BEGAN + 2, NOW),
            BeginAnew,
        ),
        (
            "revived, but used while the store was away",
            stamp(BEGAN, used, true),
            recorded(BEGAN + 1, NOW),
            Adopt,
        ),
        (
            "revived, and idle since the store was away",
            stamp(BEGAN, idle, true),
            recorded(BEGAN + 1, NOW),
            BeginAnew,
        ),
        (
            "the record was lost",
            stamp(BEGAN, used, false),
            blank(NOW),
            Adopt,
        ),
        (
            "the record was lost a while ago",
            stamp(BEGAN, NOW, false),
            blank(NOW - 5_000),
            Adopt,
        ),
        (
            "the record was dropped long after the last use",
            stamp(BEGAN, idle, false),
            blank(NOW),
            BeginAnew,
        ),
        (
            "just within the time to live",
            stamp(BEGAN, idle + 1, false),
            blank(NOW),
            Adopt,
        ),
        (
            "a new key's generation is ahead of the clock",
            stamp(BEGAN, used, false),
            recorded(NOW + 3, NOW),
            Adopt,
        ),
        (
            "begun while the store was away",
            stamp(0, used, true),
            blank(NOW),
            Adopt,
        ),
        (
            "begun while the store was away, and left",
            stamp(0, idle, true),
            blank(NOW),
            BeginAnew,
        ),
        (
            "a later incarnation's",
            stamp(BEGAN + 1, used, false),
            recorded(BEGAN, BEGAN),
            Superseded,
        ),
        (
            "a later incarnation's, idle",
            stamp(BEGAN + 1, idle, false),
            recorded(BEGAN, BEGAN),
            Superseded,
        ),
        (
            "a later incarnation's, by another store",
            stamp(NOW + 5, used, false),
            outranking(NOW),
            Adopt,
        ),
        (
            "of a later one than the one outranked",
            stamp(NOW + 6, used, false),
            outranking(NOW),
            Superseded,
        ),
        (
            "unread, used in this incarnation",
            unread(used),
            recorded(BEGAN + 1, NOW - 2_000),
            Adopt,
        ),
        (
            "unread, used before this incarnation",
            unread(used),
            recorded(BEGAN + 1, NOW),
            BeginAnew,
        ),
        (
            "unread, the record was lost",
            unread(used),
            blank(NOW),
            Adopt,
        ),
        (
            "away",
            stamp(BEGAN, used, false),
            Incarnation::StoreAway,
            Keep,
        ),
        (
            "away, used while away",
            stamp(BEGAN, used, true),
            Incarnation::StoreAway,
            Keep,
        ),
        (
            "away and idle",
            stamp(BEGAN, idle, false),
            Incarnation::StoreAway,
            BeginAnew,
        ),
        (
            "away, last used in the future",
            stamp(BEGAN, NOW + 9, false),
            Incarnation::StoreAway,
            Keep,
        ),
    ];
    for (what, stamp, incarnation, expected) in cases {
        assert_eq!(decide(&stamp, incarnation, NOW, TTL_MS), expected, "{what}");
    }
}

fn leave_a_file(fixture: &Fixture, place: &CodePlace) {
    std::fs::write(fixture.path(place).join("scratch/kept"), "mine").unwrap();
}

fn has_the_file(fixture: &Fixture, place: &CodePlace) -> bool {
    fixture.path(place).join("scratch/kept").exists()
}

#[test]
fn a_revived_session_begins_anew_and_a_lost_record_does_not() {
    let fixture = Fixture::new();
    let alice = place_of("alice");
    let now = unix_now_ms();
    assert_eq!(
        fixture.open(&alice, blank(now)).opening,
        Opening::Initialised
    );
    leave_a_file(&fixture, &alice);

    let lost = fixture.open(&alice, blank(now + 7));
    assert_eq!((lost.opening, lost.generation), (Opening::Adopted, now + 7));
    assert!(has_the_file(&fixture, &alice));

    let revived = fixture.open(&alice, recorded(now + 8, now + 60_000));
    assert_eq!(
        (revived.opening, revived.generation),
        (Opening::BegunAnew, now + 8)
    );
    assert!(!has_the_file(&fixture, &alice));
    assert_eq!(fixture.in_trash(), [format!("{}.{}", alice.id, now + 7)]);
    let again = fixture.open(&alice, recorded(now + 8, now + 60_000));
    assert_eq!((again.opening, again.lock_held), (Opening::Found, None));
}

#[test]
fn a_session_used_while_the_store_is_away_goes_on_when_it_returns() {
    let fixture = Fixture::new();
    let alice = place_of("alice");
    let begun = fixture.open(&alice, Incarnation::StoreAway);
    assert_eq!((begun.opening, begun.generation), (Opening::Initialised, 0));
    leave_a_file(&fixture, &alice);
    let again = fixture.open(&alice, Incarnation::StoreAway);
    assert_eq!((again.opening, again.lock_held), (Opening::Found, None));

    let now = unix_now_ms();
    let returned = fixture.open(&alice, recorded(now - 5, now));
    assert_eq!(
        (returned.opening, returned.generation),
        (Opening::Adopted, now - 5)
    );
    assert!(has_the_file(&fixture, &alice));

    // Away again: the generation stays, and the way back needs no adoption.
    let away = fixture.open(&alice, Incarnation::StoreAway);
    assert_eq!((away.opening, away.generation), (Opening::Found, now - 5));
    let back = fixture.open(&alice, recorded(now - 4, now));
    assert_eq!(back.opening, Opening::Adopted);
    // Heard of by the store, it is over when the store says so.
    let over = fixture.open(&alice, recorded(now - 3, now + 10));
    assert_eq!(over.opening, Opening::BegunAnew);
    assert!(!has_the_file(&fixture, &alice));
}

#[test]
fn a_late_caller_of_an_earlier_incarnation_changes_nothing() {
    let fixture = Fixture::new();
    let alice = place_of("alice");
    fixture.open(&alice, recorded(8, 1_000));
    leave_a_file(&fixture, &alice);
    let handle = fixture.volume.session(&alice);
    let late = handle.open(recorded(7, 900), &nothing(&alice), PATIENCE);
    assert!(
        matches!(late, Err(SessionOpenError::Superseded { generation: 8 })),
        "{late:?}"
    );
    assert!(has_the_file(&fixture, &alice));

    let now = unix_now_ms();
    let insists = Incarnation::Recorded {
        generation: 7,
        created_at_ms: now,
        is_new_key: false,
        outranks: Some(8),
    };
    let opened = handle.open(insists, &nothing(&alice), PATIENCE).unwrap();
    assert_eq!((opened.opening, opened.generation), (Opening::BegunAnew, 7));
}

#[test]
fn another_users_session_is_another_directory() {
    let fixture = Fixture::new();
    let (dotted, hyphened) = (place_of("a.b@example.com"), place_of("a-b@example.com"));
    fixture.open(&dotted, blank(1_000));
    leave_a_file(&fixture, &dotted);
    let other = fixture.open(&hyphened, blank(1_000));
    assert_eq!(other.opening, Opening::Initialised);
    assert!(has_the_file(&fixture, &dotted) && !has_the_file(&fixture, &hyphened));
}

/// A commit of nothing.
fn commit(opened: &OpenedSession, turn: u64) -> Result<(), mooring_sandbox::tree::CommitError> {
    let limits = mooring_sandbox::Limits {
        wall_time: PATIENCE,
        cpu_time: PATIENCE,
        cpu_percent: 100,
        memory_bytes: 1 << 20,
        file_bytes: 1 << 20,
        disk_bytes: 1 << 20,
        inodes: 1_000,
        processes: 1,
        access: mooring_sandbox::tree::TreeAccess::WHOLE,
        output_bytes: 1 << 20,
    };
    let layers = tempfile::tempdir().unwrap();
    let layer = || std::fs::File::open(layers.path()).unwrap().into();
    let changes = mooring_sandbox::Changes {
        scratch: layer(),
        results: layer(),
        is_copy: false,
    };
    mooring_sandbox::tree::commit(&opened.directory, &changes, &limits, Some(turn)).map(drop)
}

#[test]
fn a_directory_that_is_adopted_counts_its_turns_anew() {
    let fixture = Fixture::new();
    let place = place_of("alice");
    let now_ms = unix_now_ms();
    let opened = fixture.open(&place, blank(now_ms));
    commit(&opened, now_ms).unwrap();
    assert!(commit(&opened, 1).is_err(), "it was overtaken");
    // A store without the record, whose clock is behind.
    let adopted = fixture.open(&place, blank(now_ms + 1));
    assert_eq!(adopted.opening, Opening::Adopted);
    commit(&adopted, 1).unwrap();
}
