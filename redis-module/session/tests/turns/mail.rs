//! News: what is put into mailboxes, who is told of a claim, and what has a bound.

use std::sync::Arc;

use mooring_session::SessionPlace;
use mooring_session::StepProgress;
use mooring_session::events::{EventMailboxes, MailboxEvent};
use mooring_session::limits::{MAILBOX_EVENTS_MAX, WATCHED_MAX};
use mooring_session::time::Monotonic;

use crate::fixture::{Deaths, Node, place, server, worker};

const LATER: Monotonic = Monotonic::from_ms(1_000);

fn settled(events: &mut EventMailboxes, name: &str) -> usize {
    events.take(&worker(name), usize::MAX, |_| true).len()
}

#[test]
fn whoever_was_told_of_a_claim_is_told_once_when_it_settles() {
    let mut events = EventMailboxes::new();
    let tools = server("tools");
    for name in ["a", "b", "a"] {
        events.watch(&worker(name), &place(), &tools, LATER);
    }
    events.settle(&place(), &server("other"));
    events.settle(&SessionPlace::new(1, &place().key), &tools);
    assert!(!events.has(&worker("a")));
    events.settle(&place(), &tools);
    let item = MailboxEvent::Settled {
        session: Arc::new(place()),
        server: tools.clone(),
    };
    assert_eq!(events.take(&worker("a"), 10, |_| true), [item]);
    assert_eq!(settled(&mut events, "b"), 1);
    events.settle(&place(), &tools);
    assert!(!events.has(&worker("a")));
    assert_eq!(events.next_deadline(), None);
}

#[test]
fn a_claim_that_lapses_is_told_too() {
    let mut events = EventMailboxes::new();
    events.watch(&worker("a"), &place(), &server("tools"), LATER);
    events.advance(Monotonic::from_ms(999), &Deaths::default(), 10);
    assert!(!events.has(&worker("a")));
    // The claim was renewed, as the next who was told of it heard.
    let renewed = Monotonic::from_ms(2_000);
    events.watch(&worker("b"), &place(), &server("tools"), renewed);
    events.advance(LATER, &Deaths::default(), 10);
    assert!(!events.has(&worker("a")));
    assert_eq!(events.next_deadline(), Some(renewed));
    events.advance(renewed, &Deaths::default(), 10);
    assert_eq!(
        (settled(&mut events, "a"), settled(&mut events, "b")),
        (1, 1)
    );
}

#[test]
fn a_database_that_is_emptied_settles_what_was_claimed_there() {
    let now = Monotonic::from_ms(1);
    let tools = server("tools");
    for (gone, told) in [(Some(0), (1, 0)), (Some(1), (0, 1)), (None, (1, 1))] {
        let mut events = EventMailboxes::new();
        events.watch(&worker("a"), &place(), &tools, LATER);
        let elsewhere = SessionPlace::new(1, &place().key);
        events.watch(&worker("b"), &elsewhere, &tools, LATER);
        events.settle_database(gone);
        events.advance(now, &Deaths::default(), 10);
        assert_eq!((settled(&mut events, "a"), settled(&mut events, "b")), told);
    }
}

#[test]
fn a_session_that_ends_settles_everything() {
    let mut events = EventMailboxes::new();
    for name in ["one", "two"] {
        events.watch(&worker("a"), &place(), &server(name), LATER);
    }
    events.settle_session(&place());
    assert_eq!(settled(&mut events, "a"), 2);
}

#[test]
fn a_batch_has_a_bound_and_turns_come_first() {
    let mut node = Node::new();
    for name in ["one", "two", "three"] {
        node.events
            .watch(&worker("b"), &place(), &server(name), LATER);
    }
    node.events.settle_session(&place());
    node.asks("a1");
    node.asks("b1");
    node.leaves("a1").unwrap();
    let first = node.events.take(&worker("b"), 2, |_| true);
    assert!(matches!(
        first[..],
        [MailboxEvent::Turn { .. }, MailboxEvent::Settled { .. }]
    ));
    assert_eq!(node.events.take(&worker("b"), 5, |_| true).len(), 2);
    assert!(!node.events.has(&worker("b")));
}

#[test]
fn who_has_events_is_named_once() {
    let mut events = EventMailboxes::new();
    for name in ["a", "b"] {
        events.watch(&worker(name), &place(), &server("tools"), LATER);
    }
    events.settle_session(&place());
    assert_eq!(events.pop_fresh(), Some(worker("a")));
    assert_eq!(events.pop_fresh(), Some(worker("b")));
    assert_eq!(events.pop_fresh(), None);
    assert!(events.has(&worker("a")));
}

#[test]
fn the_mail_of_the_dead_is_dropped() {
    let mut events = EventMailboxes::new();
    for n in 0..10 {
        events.watch(&worker(&format!("w{n}")), &place(), &server("tools"), LATER);
    }
    events.settle_session(&place());
    let deaths = Deaths([worker("w7"), worker("w3")].into());
    for _ in 0..5 {
        assert_eq!(events.advance(LATER, &deaths, 3), StepProgress::Done);
    }
    for n in 0..10 {
        let name = format!("w{n}");
        assert_eq!(events.has(&worker(&name)), n != 7 && n != 3, "{name}");
    }
}

#[test]
fn mailboxes_and_watches_have_bounds() {
    let mut events = EventMailboxes::new();
    let place = |n: usize| SessionPlace::new(0, format!("s{n}").as_bytes());
    let tools = server("tools");
    for n in 0..MAILBOX_EVENTS_MAX + 10 {
        events.post_settled(&worker("a"), &Arc::new(place(n)), &tools);
    }
    assert_eq!(settled(&mut events, "a"), MAILBOX_EVENTS_MAX);
    for n in 0..WATCHED_MAX + 10 {
        let name = format!("w{}", n % 10);
        events.watch(&worker(&name), &place(n), &tools, LATER);
    }
    assert_eq!(
        events.advance(LATER, &Deaths::default(), WATCHED_MAX + 1),
        StepProgress::Done
    );
    let told: usize = (0..10)
        .map(|n| settled(&mut events, &format!("w{n}")))
        .sum();
    assert_eq!(told, WATCHED_MAX);
}

/// What finds no room is a turn not picked up.
#[test]
fn a_turn_that_cannot_be_told_passes_on() {
    let mut node = Node::new();
    node.asks("a1");
    node.asks("b1");
    node.asks("c1");
    for n in 0..MAILBOX_EVENTS_MAX {
        let other = Arc::new(SessionPlace::new(0, format!("s{n}").as_bytes()));
        node.events
            .post_settled(&worker("b"), &other, &server("tools"));
    }
    node.leaves("a1").unwrap();
    node.pass(1_000);
    assert_eq!(node.hears("c"), ["c1"]);
}
