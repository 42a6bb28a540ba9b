//! Turns that are delegated to a worker.

use mooring_session::StepProgress;
use mooring_session::limits::{DELEGATION_STREAK_MIN, STREAK_PAUSE_MAX};
use mooring_session::turns::{TurnRequest, TurnScope, TurnStatus};

use crate::fixture::*;

fn delegation(ticket: &str) -> TurnRequest {
    TurnRequest {
        scope: TurnScope::Delegation,
        ..request(ticket)
    }
}

/// Whether a turn that the ticket's worker asks for is delegated. It has to be free.
fn is_delegated(node: &mut Node, ticket: &str) -> bool {
    match node.enter(&delegation(ticket)).unwrap() {
        TurnStatus::Delegated(_) => true,
        TurnStatus::Granted(_) => false,
        TurnStatus::Waiting => panic!("{ticket} waits"),
    }
}

/// Worker `a` gets a delegation with its next turn.
fn in_a_row() -> Node {
    let mut node = Node::new();
    for _ in 1..DELEGATION_STREAK_MIN {
        assert!(!is_delegated(&mut node, "a1"));
        node.leaves("a1").unwrap();
    }
    node
}

/// Worker `a` has a delegation under `a9`.
fn delegated() -> Node {
    let mut node = in_a_row();
    assert!(is_delegated(&mut node, "a9"));
    node
}

#[test]
fn turns_in_a_row_are_delegated() {
    let mut node = delegated();
    // It renews the delegation, and keeps its number.
    for _ in 0..4 {
        node.pass(900);
        assert!(is_delegated(&mut node, "a9"));
    }
    assert!(node.is_held());
    node.leaves("a9").unwrap();
    assert!(!node.is_held());
    assert_eq!(node.turns.figures().delegated, 1);
    // The next streak begins.
    assert!(!is_delegated(&mut node, "a2"));
}

#[test]
fn a_streak_ends_with_a_pause_another_worker_or_a_waiter() {
    type Interruption = fn(&mut Node);
    let interruptions: [Interruption; 4] = [
        |node| node.pass(STREAK_PAUSE_MAX.get()),
        |node| {
            node.asks("b1").unwrap();
            node.leaves("b1").unwrap();
        },
        |node| {
            assert!(!is_delegated(node, "b1"));
            node.leaves("b1").unwrap();
        },
        |node| {
            node.asks("a1").unwrap();
            assert_eq!(node.asks("a2"), None);
            node.leaves("a1").unwrap();
            node.leaves("a2").unwrap();
        },
    ];
    for interrupt in interruptions {
        let mut node = in_a_row();
        interrupt(&mut node);
        assert!(!is_delegated(&mut node, "a3"));
    }
}

#[test]
fn a_waiter_recalls_it_once_and_is_next() {
    let mut node = delegated();
    assert_eq!(node.asks("b1"), None);
    assert_eq!(node.asks("c1"), None);
    assert_eq!(node.hears("a"), ["settled"]);
    assert_eq!(node.asks("b1"), None);
    assert!(node.hears("a").is_empty());
    assert_eq!(node.turns.figures().recalled, 1);
    node.leaves("a9").unwrap();
    assert_eq!(node.hears("b"), ["b1"]);
}

#[test]
fn a_recalled_delegation_is_not_renewed_but_its_call_keeps_the_turn() {
    let mut node = delegated();
    assert_eq!(node.asks("b1"), None);
    assert!(!is_delegated(&mut node, "a9"));
    node.pass(1_500);
    assert!(!is_delegated(&mut node, "a9"));
    node.pass(1_500);
    assert!(node.hears("b").is_empty());
    node.leaves("a9").unwrap();
    assert_eq!(node.hears("b"), ["b1"]);
}

#[test]
fn a_waiter_has_the_turn_when_the_lease_has_lapsed_without_a_recall() {
    let mut node = delegated();
    assert_eq!(node.asks("b1"), None);
    node.pass(1_999);
    assert!(node.hears("b").is_empty());
    node.pass(1);
    assert_eq!(node.hears("b"), ["b1"]);
    // The worker that comes too late is a caller like any other.
    assert_eq!(node.enter(&delegation("a9")).unwrap(), TurnStatus::Waiting);
}

#[test]
fn a_change_of_the_binding_is_told_to_the_worker_until_it_leaves() {
    let mut node = delegated();
    node.events.settle(&place(), &server("tools"));
    assert_eq!(node.hears("a"), ["settled"]);

    let mut node = delegated();
    node.leaves("a9").unwrap();
    node.events.settle(&place(), &server("tools"));
    assert!(node.hears("a").is_empty());

    let mut node = delegated();
    node.turns.drop_session(&place());
    node.events.settle_session(&place());
    assert_eq!(node.hears("a"), ["settled"]);
    assert!(!node.is_held());
}

#[test]
fn nothing_is_delegated_in_a_quiet_time() {
    let mut node = delegated();
    let mono = node.mono();
    node.turns
        .restart(mono, mooring_session::time::Millis::new(QUIET_MS));
    assert_eq!(node.enter(&delegation("a9")).unwrap(), TurnStatus::Waiting);
    node.pass(QUIET_MS);
    assert!(node.hears("a").contains(&"a9".to_owned()));
    assert!(!is_delegated(&mut node, "a9"));
}

#[test]
fn a_worker_that_cannot_be_notified_loses_what_it_has_not_made_the_turn_of_one_call() {
    let end = |node: &mut Node| {
        node.with(|turns, context| turns.end_delegations(&worker("a"), context, 100))
    };
    let mut node = delegated();
    assert_eq!(node.asks("b1"), None);
    assert_eq!(end(&mut node), StepProgress::Done);
    assert_eq!(node.hears("b"), ["b1"]);

    let mut node = delegated();
    assert!(node.asks("a9").is_some());
    assert_eq!(node.asks("b1"), None);
    assert_eq!(end(&mut node), StepProgress::Done);
    assert!(node.hears("b").is_empty());
}

#[test]
fn the_worker_is_told_of_a_cancellation_that_names_no_waiter() {
    for ticket in ["a9", "x"] {
        let mut node = delegated();
        assert!(node.withdraws(ticket).is_err());
        assert_eq!(node.hears("a"), [format!("no {ticket}")]);
        // Its lease is not cut short: the worker decides.
        node.pass(1_999);
        assert!(node.is_held());
    }
}

#[test]
fn a_session_that_is_wanted_idle_is_recalled() {
    let mut node = delegated();
    node.turns.recall_session(&place(), &mut node.events);
    assert_eq!(node.hears("a"), ["settled"]);
    assert!(node.is_held());
    node.leaves("a9").unwrap();
    assert!(!node.is_held());
}
