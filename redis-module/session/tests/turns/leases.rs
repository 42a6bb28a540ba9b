//! How long a turn is had: leases, grants that are picked up or not, deaths, and when the next of that is due.

use mooring_session::StepProgress;
use mooring_session::time::Millis;
use mooring_session::turns::TurnRequest;

use crate::fixture::{Node, code, request, worker};

#[test]
fn a_lease_that_lapses_passes_the_turn_on() {
    let mut node = Node::new();
    let first = node.asks("a1").unwrap();
    node.asks("b1");
    node.pass(1_999);
    assert_eq!(node.hears("b"), [""; 0]);
    node.pass(1);
    assert_eq!(node.hears("b"), ["b1"]);
    assert_eq!(code(node.leaves("a1")), "STALE");
    assert!(node.asks("b1").unwrap() > first);
    // Whoever lost its turn is a newcomer.
    assert_eq!(node.asks("a1"), None);
    assert_eq!(node.turns.figures().lost, 1);
}

/// Deadlines are checked on use: the timer only makes it prompt.
#[test]
fn a_lapsed_lease_is_lapsed_before_any_timer_says_so() {
    let mut node = Node::new();
    let first = node.asks("a1");
    node.mono += 2_000;
    assert!(!node.is_held());
    let mut late = Node::new();
    late.asks("a1");
    late.mono += 2_000;
    assert_eq!(code(late.leaves("a1")), "STALE");
    assert!(node.asks("b1") > first);
}

#[test]
fn a_turn_of_the_dead_goes_to_the_next_living() {
    let mut node = Node::new();
    node.asks("a1");
    node.asks("b1");
    node.asks("b2");
    node.asks("c1");
    node.deaths.0.insert(worker("b"));
    node.dies("a");
    assert_eq!(node.hears("c"), ["c1"]);
    assert_eq!(code(node.leaves("b1")), "STALE");
    assert_eq!(code(node.enter(&request("a2"))), "STALE");
}

#[test]
fn a_grant_that_is_not_picked_up_passes_on_and_its_waiter_leaves() {
    let mut node = Node::new();
    node.asks("a1");
    node.asks("b1");
    node.asks("c1");
    node.leaves("a1").unwrap();
    node.pass(999);
    assert_eq!(node.hears("c"), [""; 0]);
    node.pass(1);
    assert_eq!(node.hears("c"), ["c1"]);
    // What is in the mailbox is true no more; that it is worth asking again, is.
    assert_eq!(node.hears("b"), ["settled"]);
    assert_eq!(node.asks("b1"), None);
}

#[test]
fn a_grant_is_picked_up_by_asking_again_and_the_lease_counts_from_then() {
    let mut node = Node::new();
    node.asks("a1");
    node.asks("b1");
    node.leaves("a1").unwrap();
    node.pass(999);
    assert!(node.asks("b1").is_some());
    node.pass(1_999);
    assert!(node.is_held());
    assert_eq!(node.hears("b"), ["b1"], "it is still true");
    node.pass(1);
    assert!(!node.is_held());
}

/// The worker takes its event just when the second is over, and before any timer says so.
#[test]
fn a_grant_that_has_run_out_is_not_delivered() {
    let mut node = Node::new();
    node.asks("a1");
    node.asks("b1");
    node.asks("c1");
    node.leaves("a1").unwrap();
    node.mono += 1_000;
    assert_eq!(node.hears("b"), [""; 0]);
    node.advance();
    assert_eq!(node.hears("c"), ["c1"]);
}

/// A deadline that has passed and stands is a timer that never rests.
#[test]
fn what_is_due_next_is_the_lease_as_it_is_now() {
    let mut node = Node::new();
    let due = |node: &Node| node.turns.next_deadline().map(|at| at.ms() - node.mono);
    node.asks("a1");
    assert_eq!(due(&node), Some(2_000));
    node.pass(500);
    node.asks("a1");
    assert_eq!(due(&node), Some(2_000));
    node.asks("b1");
    node.leaves("a1").unwrap();
    assert_eq!(due(&node), Some(1_000));
    node.hears("b");
    assert_eq!(due(&node), Some(2_000));
    node.leaves("b1").unwrap();
    assert_eq!(node.turns.next_deadline(), None);
}

/// Whoever has no turn any more is not looked after when it dies.
#[test]
fn a_death_without_a_turn_is_nothing_to_do() {
    let mut node = Node::new();
    node.asks("a1");
    node.asks("b1");
    node.leaves("a1").unwrap();
    node.hears("b");
    node.dies("a");
    let advanced = node.with(|turns, context| turns.advance(context, 10));
    assert_eq!(advanced, StepProgress::Done);
    assert!(node.is_held());
}

#[test]
fn delivered_news_begins_the_lease() {
    let mut node = Node::new();
    node.asks("a1");
    node.asks("b1");
    node.leaves("a1").unwrap();
    node.pass(500);
    assert_eq!(node.hears("b"), ["b1"]);
    node.pass(1_999);
    assert!(node.is_held());
    node.pass(1);
    assert!(!node.is_held());
}

#[test]
fn a_lease_out_of_its_range_is_refused_with_the_range() {
    let mut node = Node::new();
    for (lease, expected) in [(9, false), (10, true), (5_000, true), (5_001, false)] {
        let request = TurnRequest {
            lease: Millis::new(lease),
            ..request("a1")
        };
        let outcome = node.enter(&request);
        assert_eq!(outcome.is_ok(), expected, "{lease}");
        if let Err(refusal) = outcome {
            assert_eq!(
                refusal.to_string(),
                "ERR invalid LEASE: must be an integer from 10 to 5000"
            );
        }
    }
}
