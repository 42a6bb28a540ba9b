//! The quiet time after a start or a promotion, and turns that are claimed again.

use mooring_session::limits::TURN_NUMBER_MAX;
use mooring_session::time::Millis;
use mooring_session::time::Timestamp;
use mooring_session::turns::{TurnRequest, TurnStatus, Turns};

use crate::fixture::{Node, QUIET_MS, WALL, code, place, request};

fn held(ticket: &str, turn: u64) -> TurnRequest {
    TurnRequest {
        held: Some(turn),
        ..request(ticket)
    }
}

#[test]
fn in_the_quiet_time_only_what_was_held_is_granted() {
    let mut node = Node::started();
    assert_eq!(node.asks("b1"), None);
    assert_eq!(node.enter(&held("a1", 7)), Ok(TurnStatus::Granted(7)));
    assert_eq!(node.asks("c1"), None);
    node.leaves("a1").unwrap();
    assert_eq!(node.hears("b"), [""; 0]);
    node.pass(QUIET_MS - 1);
    assert_eq!(node.hears("b"), [""; 0]);
    node.pass(1);
    assert_eq!(node.hears("b"), ["b1"]);
    node.leaves("b1").unwrap();
    assert_eq!(node.hears("c"), ["c1"]);
}

/// Nobody can hold an older turn of it.
#[test]
fn a_session_created_in_the_quiet_time_waits_for_nothing() {
    let mut node = Node::started();
    let now = node.mono();
    node.turns.note_created(&place(), now);
    assert!(node.asks("a1").is_some());
    assert_eq!(node.asks("b1"), None);
    node.leaves("a1").unwrap();
    assert_eq!(node.hears("b"), ["b1"], "in the order of arrival");
    node.leaves("b1").unwrap();
    assert!(node.asks("a2").is_some());
}

#[test]
fn another_session_under_its_key_waits_as_ever() {
    let forget: [fn(&mut Turns); 4] = [
        |turns| turns.drop_session(&place()),
        |turns| turns.restart_session(&place()),
        |turns| turns.drop_database(place().database),
        |turns| turns.restart_database(place().database),
    ];
    for forget in forget {
        let mut node = Node::started();
        let now = node.mono();
        node.turns.note_created(&place(), now);
        forget(&mut node.turns);
        assert_eq!(node.asks("a1"), None);
    }
}

#[test]
fn who_waits_alone_has_the_turn_when_the_quiet_time_is_over() {
    let mut node = Node::started();
    node.asks("b1");
    assert_eq!(node.turns.next_deadline().map(|at| at.ms()), Some(QUIET_MS));
    node.pass(QUIET_MS);
    assert_eq!(node.hears("b"), ["b1"]);
}

#[test]
fn a_turn_claimed_again_is_a_turn_like_any_other() {
    let mut node = Node::started();
    node.enter(&held("a1", 7)).unwrap();
    assert_eq!(node.asks("a1"), Some(7), "it is renewed");
    node.asks("b1");
    node.pass(QUIET_MS);
    assert_eq!(code(node.leaves("a1")), "STALE", "its lease has lapsed");
    assert_eq!(node.hears("b"), ["b1"]);
}

#[test]
fn a_turn_that_is_held_past_the_quiet_time_is_waited_for() {
    let mut node = Node::started();
    node.enter(&held("a1", 7)).unwrap();
    node.asks("b1");
    for _ in 0..10 {
        node.pass(1_000);
        assert_eq!(node.asks("a1"), Some(7));
        assert_eq!(node.hears("b"), [""; 0]);
    }
    node.leaves("a1").unwrap();
    assert_eq!(node.hears("b"), ["b1"]);
}

/// The higher number was given after the lower had been lost.
#[test]
fn of_two_that_claim_one_turn_the_later_is_right() {
    let mut node = Node::started();
    node.enter(&held("b1", 9)).unwrap();
    assert_eq!(code(node.enter(&held("a1", 7))), "STALE");
    assert_eq!(code(node.enter(&held("a1", 9))), "STALE");
    assert_eq!(node.asks("b1"), Some(9));

    let mut node = Node::started();
    node.enter(&held("a1", 7)).unwrap();
    assert_eq!(node.enter(&held("b1", 9)), Ok(TurnStatus::Granted(9)));
    assert_eq!(code(node.leaves("a1")), "STALE");
    assert_eq!(code(node.enter(&held("a1", 7))), "STALE");
    assert_eq!(node.turns.figures().lost, 1);
}

#[test]
fn the_quiet_time_remembers_what_was_claimed_and_left() {
    let mut node = Node::started();
    node.enter(&held("b1", 9)).unwrap();
    node.leaves("b1").unwrap();
    assert_eq!(code(node.enter(&held("a1", 7))), "STALE");
    node.pass(QUIET_MS);
    assert_eq!(node.turns.sizes(), (0, 0));
}

#[test]
fn after_the_quiet_time_nothing_can_be_held_that_another_has() {
    let mut node = Node::new();
    let number = node.asks("a1").unwrap();
    assert_eq!(code(node.enter(&held("b1", 7))), "STALE");
    assert_eq!(code(node.enter(&held("b1", number + 1))), "STALE");
    node.leaves("a1").unwrap();
    // Nobody has it, so it is given: under a number that nobody had.
    assert_eq!(
        node.enter(&held("b1", 7)),
        Ok(TurnStatus::Granted(number + 1))
    );
}

#[test]
fn numbers_go_on_above_what_was_claimed_again() {
    let mut node = Node::started();
    let ahead = Timestamp::from_unix_ms(WALL + 3_600_000).least_number();
    node.enter(&held("a1", ahead)).unwrap();
    node.leaves("a1").unwrap();
    node.pass(QUIET_MS);
    assert_eq!(node.asks("b1"), Some(ahead + 1));
}

/// A number that no clock has made is its claimant's alone: the numbers of everybody else stay with the clock.
#[test]
fn numbers_follow_what_was_claimed_again_up_to_a_day_ahead() {
    let latest = Timestamp::from_unix_ms(WALL + 86_400_000).least_number();
    let own = Timestamp::from_unix_ms(WALL + QUIET_MS).least_number();
    for (claimed, is_granted, next) in [
        (latest, true, latest + 1),
        (latest + 1, false, own),
        (TURN_NUMBER_MAX, false, own),
    ] {
        let mut node = Node::started();
        let claim = node.enter(&held("a1", claimed));
        if is_granted {
            assert_eq!(claim, Ok(TurnStatus::Granted(claimed)));
            node.leaves("a1").unwrap();
        } else {
            assert_eq!(code(claim), "STALE", "no clock has given {claimed}");
        }
        assert_eq!(code(node.enter(&held("b1", claimed))), "STALE");
        node.pass(QUIET_MS);
        for number in next..next + 3 {
            assert_eq!(node.asks("b1"), Some(number), "after {claimed}");
            node.leaves("b1").unwrap();
        }
    }
}

#[test]
fn a_promotion_begins_anew() {
    let mut node = Node::new();
    node.asks("a1");
    node.asks("b1");
    let now = node.mono();
    node.turns.restart(now, Millis::new(QUIET_MS));
    node.advance();
    assert_eq!(node.hears("b"), ["settled"]);
    assert_eq!(node.asks("b1"), None);
    assert_eq!(node.enter(&held("a1", 7)), Ok(TurnStatus::Granted(7)));
    node.leaves("a1").unwrap();
    node.pass(QUIET_MS - 1);
    assert!(node.is_held(), "b1 waits, so the session is not idle");
    node.pass(1);
    assert_eq!(node.hears("b"), ["b1"]);
}

/// By SWAPDB or RENAME, and back: who holds its turn has heard of nothing.
#[test]
fn a_session_that_comes_back_is_quiet_until_the_lease_of_its_holder_lapses() {
    let restarts: [fn(&mut Turns); 2] = [
        |turns| turns.restart_session(&place()),
        |turns| turns.restart_database(0),
    ];
    for restart in restarts {
        let mut node = Node::new();
        let number = node.asks("a1").unwrap();
        node.asks("b1");
        node.pass(500);
        restart(&mut node.turns);
        node.advance();
        assert_eq!(node.hears("b"), ["settled"]);
        assert_eq!(code(node.leaves("a1")), "STALE");
        // A second time, while it is quiet.
        restart(&mut node.turns);
        assert_eq!(node.asks("b1"), None);
        node.leaves("b1").unwrap();
        assert_eq!(node.asks("b1"), None);
        assert_eq!(code(node.enter(&held("c1", number - 1))), "STALE");
        node.pass(1_499);
        assert_eq!(node.hears("b"), [""; 0]);
        node.pass(1);
        assert_eq!(node.hears("b"), ["b1"]);
        node.leaves("b1").unwrap();
        assert_eq!(node.turns.sizes(), (0, 0));
    }
}

#[test]
fn the_holder_of_a_session_that_comes_back_may_claim_its_turn_again() {
    let mut node = Node::new();
    let number = node.asks("a1").unwrap();
    node.turns.restart_session(&place());
    assert_eq!(node.asks("b1"), None);
    let granted = node.enter(&held("a1", number));
    assert_eq!(granted, Ok(TurnStatus::Granted(number)));
    node.pass(1_999);
    assert_eq!(node.asks("a1"), Some(number), "it is renewed");
    node.pass(1_999);
    node.leaves("a1").unwrap();
    assert_eq!(node.hears("b"), ["b1"]);

    let number = node.asks("b1").unwrap();
    node.turns.restart_session(&place());
    node.asks("c1");
    node.enter(&held("b1", number)).unwrap();
    node.leaves("b1").unwrap();
    assert_eq!(node.hears("c"), ["c1"], "at once");
}

/// Nobody believes in a turn that was offered, and other queues go on.
#[test]
fn a_session_without_a_holder_that_comes_back_is_not_quiet() {
    let mut node = Node::new();
    node.asks("a1");
    node.asks("b1");
    node.leaves("a1").unwrap();
    node.turns.restart_database(1);
    assert!(node.is_held());
    node.turns.restart_session(&place());
    node.advance();
    assert_eq!(node.turns.sizes(), (0, 0));
    assert_eq!(node.hears("b"), ["settled"]);
    assert!(node.asks("c1").is_some());
}

#[test]
fn a_holder_that_dies_in_the_quiet_time_leaves_it_quiet() {
    let mut node = Node::started();
    node.enter(&held("a1", 7)).unwrap();
    node.asks("b1");
    node.dies("a");
    assert_eq!(node.hears("b"), [""; 0]);
    node.pass(QUIET_MS);
    assert_eq!(node.hears("b"), ["b1"]);
}
