//! Calls that somebody else takes out of the queue: who goes, who is told, and who keeps its turn.

use mooring_session::Refusal;
use mooring_session::limits::TURN_CANCELLED_GRACE;
use mooring_session::refusal::Busy;
use mooring_session::turns::TurnRequest;

use crate::fixture::{Node, code, request};

const GRACE_MS: u64 = TURN_CANCELLED_GRACE.get();

const HAS_ITS_TURN: Result<usize, Refusal> = Err(Refusal::Busy(Busy::Turn));

#[test]
fn who_waits_is_taken_out_and_its_worker_told_and_nobody_else() {
    let mut node = Node::new();
    for ticket in ["a1", "b1", "c1", "b2"] {
        node.asks(ticket);
    }
    assert_eq!(node.withdraws("b1"), Ok(1));
    assert_eq!(node.turns.sizes(), (1, 2));
    assert_eq!(code(node.withdraws("b1")), "STALE");
    assert_eq!(node.hears("b"), ["no b1"]);
    assert_eq!(node.hears("c"), [""; 0]);
    node.leaves("a1").unwrap();
    assert_eq!(node.hears("c"), ["c1"], "the others keep their places");
    node.leaves("c1").unwrap();
    assert_eq!(node.hears("b"), ["b2"]);
}

/// The call is under way, and what stops it is not the queue's to do: it has a moment to end.
#[test]
fn a_cancelled_holder_keeps_its_turn_for_the_grace() {
    let mut node = Node::new();
    let number = node.asks("a1");
    node.asks("b1");
    assert_eq!(node.withdraws("a1"), HAS_ITS_TURN);
    assert_eq!(node.hears("a"), [""; 0]);
    assert_eq!(node.asks("a1"), number);
    // So does one that was told by news.
    node.leaves("a1").unwrap();
    assert_eq!(node.hears("b"), ["b1"]);
    assert_eq!(node.withdraws("b1"), HAS_ITS_TURN);
}

#[test]
fn a_cancelled_holder_that_renews_for_ever_passes_its_turn_on_after_the_grace() {
    let mut node = Node::new();
    let number = node.asks("a1");
    node.asks("b1");
    assert_eq!(node.withdraws("a1"), HAS_ITS_TURN);
    node.pass(GRACE_MS - 1);
    assert_eq!(node.asks("a1"), number);
    // To cancel it twice does not prolong the grace.
    assert_eq!(node.withdraws("a1"), HAS_ITS_TURN);
    assert_eq!(node.hears("b"), [""; 0]);
    node.pass(1);
    assert_eq!(node.hears("b"), ["b1"]);
    let lost = TurnRequest {
        held: number,
        ..request("a1")
    };
    assert_eq!(code(node.enter(&lost)), "STALE");
    assert_eq!(node.turns.figures().lost, 1);
    // The next turn lasts as long as ever.
    node.pass(GRACE_MS);
    assert!(node.asks("b1").is_some());
    node.pass(GRACE_MS);
    assert!(node.asks("b1").is_some());
}

#[test]
fn a_grant_that_nobody_has_heard_of_goes_to_the_next() {
    let mut node = Node::new();
    node.asks("a1");
    node.asks("b1");
    node.asks("c1");
    node.leaves("a1").unwrap();
    assert_eq!(node.withdraws("b1"), Ok(1));
    assert_eq!(node.hears("b"), ["no b1"], "not the turn before it");
    assert_eq!(node.hears("c"), ["c1"]);
    assert_eq!(node.turns.figures().lost, 0);
    // Where nobody waits, nothing is left.
    node.leaves("c1").unwrap();
    node.asks("a1");
    node.asks("b1");
    node.leaves("a1").unwrap();
    assert_eq!(node.withdraws("b1"), Ok(1));
    assert_eq!(node.turns.sizes(), (0, 0));
    assert_eq!(node.turns.next_deadline(), None);
}

/// One call may have been asked for twice.
#[test]
fn all_that_begin_so_are_taken_out_unless_one_has_the_turn() {
    let mut node = Node::new();
    for ticket in ["a1", "b1.x", "b1.y", "b10", "b0", "c1"] {
        node.asks(ticket);
    }
    assert_eq!(node.withdraws("b1."), Ok(2));
    assert_eq!(node.hears("b"), ["no b1.x", "no b1.y"]);
    assert_eq!(node.turns.sizes(), (1, 3));
    node.asks("b1.x");
    assert_eq!(code(node.withdraws("b2")), "STALE");
    assert_eq!(node.withdraws("b1"), Ok(2), "b10 and b1.x");
    // Asking again is the only way back, and leads to the end of the line.
    node.asks("b1.x");
    for (leaves, next) in [("a1", "b0"), ("b0", "c1"), ("c1", "b1.x")] {
        node.leaves(leaves).unwrap();
        node.hears("b");
        assert!(node.asks(next).is_some());
    }
    node.asks("b1.y");
    assert_eq!(node.withdraws("b1."), HAS_ITS_TURN);
    assert_eq!(node.turns.sizes(), (1, 1), "the other still waits");
}

#[test]
fn the_queue_of_one_who_waits_alone_goes_with_it() {
    let mut node = Node::started();
    node.asks("b1");
    assert_eq!(node.withdraws("b1"), Ok(1));
    assert_eq!(node.turns.sizes(), (0, 0));
    assert_eq!(node.turns.next_deadline(), None);
    assert_eq!(code(node.withdraws("b1")), "STALE");
}

/// A holder that lost its turn has none to keep.
#[test]
fn a_lapsed_lease_is_no_turn() {
    let mut node = Node::new();
    node.asks("a1");
    node.asks("b1");
    node.mono += 2_000;
    assert_eq!(code(node.withdraws("a1")), "STALE");
    assert_eq!(node.hears("b"), ["b1"]);
}
