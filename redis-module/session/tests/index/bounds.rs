//! Many sessions: no call looks at all of them, and what it leaves is found by the next ones.

use std::collections::BTreeSet;

use mooring_session::StepProgress;
use mooring_session::index::{Filter, Glob, Index, IndexCounts, Order};
use mooring_session::limits::{OVERDUE_MAX, PAGE_EXAMINED_MAX, SETTLED_WITH_A_QUESTION_MAX};
use mooring_session::record::SessionState;

use crate::sessions::{Edit, SEED, TTL, at, prefix_of, session};
use crate::support::{instance, principal, server};

const SESSIONS: usize = 25_000;
const START: u64 = 1_000_000_000_000;

fn key(number: usize) -> Vec<u8> {
    format!("mcpgw:session_affinity:{number:05}").into_bytes()
}

/// Ten sessions are created in a millisecond; one in a thousand is alice's.
fn index() -> Index {
    let mut index = Index::new(SEED);
    for number in 0..SESSIONS {
        let owner = if number % 1_000 == 0 { "alice" } else { "bob" };
        let now = START + number as u64 / 10;
        let record = session(owner, now).bound("tools", "http://1", "w:1", None);
        let key = key(number);
        index.put(prefix_of(&key), &key, &record, at(now));
    }
    index
}

/// The sizes of the pages of a whole walk, and how many sessions they had.
fn walk(index: &Index, filter: &Filter, order: Order, count: usize) -> (Vec<usize>, usize) {
    let mut sizes = Vec::new();
    let mut seen = BTreeSet::new();
    let mut after = None;
    loop {
        let page = index.page(filter, order, after, count, at(START));
        sizes.push(page.sessions.len());
        for session in &page.sessions {
            assert!(seen.insert(session.key.to_vec()), "seen twice");
        }
        let Some(next) = page.next else {
            return (sizes, seen.len());
        };
        assert_ne!(Some(next), after, "the walk stands still");
        after = Some(next);
    }
}

#[test]
fn a_walk_finds_every_session_once() {
    let index = index();
    for order in [Order::Newest, Order::Oldest] {
        let (sizes, seen) = walk(&index, &Filter::default(), order, 1_000);
        assert_eq!((sizes.len(), seen), (25, SESSIONS));
    }
}

#[test]
fn what_few_sessions_have_is_found_at_once() {
    let filter = Filter {
        principal: Some(principal("alice")),
        ..Filter::default()
    };
    for order in [Order::Newest, Order::Oldest] {
        assert_eq!(walk(&index(), &filter, order, 100), (vec![25], 25));
    }
}

#[test]
fn what_many_have_is_walked_in_bounded_pages() {
    let filter = Filter {
        server: Some(server("tools")),
        instance: Some(instance("http://1")),
        state: Some(SessionState::Ended),
        ..Filter::default()
    };
    let (sizes, seen) = walk(&index(), &filter, Order::Newest, 100);
    assert_eq!(
        (sizes.len(), seen),
        (SESSIONS.div_ceil(PAGE_EXAMINED_MAX), 0)
    );
}

#[test]
fn a_costly_pattern_makes_small_pages() {
    const LONG: usize = 100;
    let mut index = Index::new(SEED);
    for number in 0..LONG {
        let key = format!("mcpgw:{}{number}", "a".repeat(500));
        let record = session("bob", START);
        index.put(
            prefix_of(key.as_bytes()),
            key.as_bytes(),
            &record,
            at(START),
        );
    }
    let pattern = format!("*{}b", "a".repeat(200));
    let filter = Filter {
        pattern: Some(Glob::parse(pattern.as_bytes()).unwrap()),
        ..Filter::default()
    };
    let (sizes, seen) = walk(&index, &filter, Order::Oldest, LONG);
    assert!(sizes.len() > 5, "{sizes:?}");
    assert_eq!(seen, 0);
}

#[test]
fn a_walk_sees_what_stays_whatever_comes_and_goes() {
    let mut index = index();
    let mut seen = BTreeSet::new();
    let mut after = None;
    let mut pages = 0;
    loop {
        let page = index.page(&Filter::default(), Order::Oldest, after, 700, at(START));
        seen.extend(page.sessions.iter().map(|session| session.key.to_vec()));
        after = page.next;
        if after.is_none() {
            break;
        }
        // Every odd session goes, some behind the walk and some before it, and others come in their slots.
        for number in (pages * 900..(pages + 1) * 900).filter(|number| number % 2 == 1) {
            index.remove(&key(number));
            let key = key(SESSIONS + number);
            let record = session("carol", START + SESSIONS as u64);
            index.put(prefix_of(&key), &key, &record, at(START));
        }
        pages += 1;
    }
    for number in (0..SESSIONS).step_by(2) {
        assert!(
            seen.contains(&key(number)),
            "{number} was there all the time"
        );
    }
}

#[test]
fn deadlines_pass_in_bounded_steps_and_nobody_is_told_too_late() {
    let mut index = index();
    let end = at(START).plus(TTL).plus(TTL);
    let mut told = BTreeSet::new();
    let mut calls = 0;
    while index.counts().active > 0 {
        let expired_before = index.counts().expired;
        let keys = index.advance(end, 1_000);
        assert!(keys.len() <= 1_000);
        assert!(index.counts().expired - expired_before <= 1_000);
        told.extend(keys);
        calls += 1;
        assert!(calls <= SESSIONS.div_ceil(1_000) + 1, "it does not end");
    }
    told.extend(index.advance(end, SESSIONS));
    assert_eq!(told.len(), SESSIONS);
    // The clock steps back, and nobody has expired.
    while index.counts().expired > 0 {
        assert!(index.advance(at(START), 10_000).is_empty());
    }
    assert_eq!(index.counts().active, SESSIONS as u64);
    assert_eq!(
        index.bound_to(&server("tools"), &instance("http://1")),
        SESSIONS as u64
    );
}

#[test]
fn what_nobody_asks_for_is_kept_up_to_a_bound_and_then_waits() {
    let mut index = index();
    let end = at(START).plus(TTL).plus(TTL);
    for _ in 0..SESSIONS {
        index.held(&principal("alice"), prefix_of(&key(0)), b"", end);
    }
    assert_eq!(index.counts().expired, OVERDUE_MAX as u64);
    assert_eq!(index.advance(end, SESSIONS).len(), OVERDUE_MAX);
}

#[test]
fn a_sweep_that_sees_nothing_takes_an_index_apart_in_bounded_steps() {
    let mut index = index();
    index.begin_sweep();
    let mut steps = 1;
    while index.end_sweep(1_000) == StepProgress::More {
        steps += 1;
    }
    assert_eq!(steps, SESSIONS / 1_000 + 1);
    assert_eq!(index.counts(), IndexCounts::default());
    assert_eq!(
        walk(&index, &Filter::default(), Order::Newest, 10),
        (vec![0], 0)
    );
}

/// Which of bob's sessions is named at a cap at `now`.
fn victim(index: &mut Index, now: u64) -> Option<Box<[u8]>> {
    let held = index.held(&principal("bob"), prefix_of(&key(1)), b"", at(now));
    held.least_recently_used
}

/// An outage of the gateways ends with the deadlines of many at once.
#[test]
fn a_cap_counts_no_session_that_has_expired_however_many_of_others_have() {
    let mut index = Index::new(SEED);
    let others = SETTLED_WITH_A_QUESTION_MAX as u64 * 3;
    for number in 0..others {
        let key = key(number as usize);
        index.put(prefix_of(&key), &key, &session("alice", START), at(START));
    }
    for number in 0..10 {
        let key = key(others as usize + number);
        index.put(
            prefix_of(&key),
            &key,
            &session("bob", START + 1),
            at(START + 1),
        );
    }
    let end = START + 1 + 2 * TTL.get();
    let fresh = key(others as usize + 10);
    index.put(prefix_of(&fresh), &fresh, &session("bob", end), at(end));
    let held = index.held(&principal("bob"), prefix_of(&fresh), b"", at(end));
    assert_eq!(held.active, 1);
    assert_eq!(held.least_recently_used.as_deref(), Some(&*fresh));
}

#[test]
fn uses_are_noted_only_while_a_cap_asks_for_them() {
    let mut index = Index::new(SEED);
    for number in 1..=3 {
        let record = session("bob", START).bound("tools", "http://1", "w:1", None);
        index.put(prefix_of(&key(number)), &key(number), &record, at(START));
    }
    let record = session("carol", START);
    index.put(prefix_of(&key(4)), &key(4), &record, at(START));
    assert!(!index.follows_uses());
    assert_eq!(victim(&mut index, START), Some(key(1).into()));
    assert!(index.follows_uses());
    index.note_use(&key(1), at(START));
    assert_eq!(victim(&mut index, START), Some(key(2).into()));
    // A clock that steps back loses no use.
    for number in [2, 3] {
        index.note_use(&key(number), at(START - 3_600_000));
    }
    assert_eq!(victim(&mut index, START), Some(key(1).into()));
    for number in 1..=3 {
        assert!(index.follows_uses());
        index.remove(&key(number));
    }
    assert!(!index.follows_uses(), "nobody with a cap is left");
}
