//! One queue: the order of turns, leave-taking, bounds, and what becomes of queues with their sessions.

use mooring_session::limits::{TURN_PICKUP, TURN_QUEUES_MAX};
use mooring_session::time::{Millis, Timestamp};
use mooring_session::turns::{HolderView, Line, QueueView, TurnHolder, TurnRequest, WaiterView};
use mooring_session::{Refusal, SessionPlace};

use crate::fixture::{Node, WALL, code, place, request, server, token, worker};

#[test]
fn the_first_has_the_turn_and_the_others_follow_in_the_order_of_arrival() {
    let mut node = Node::new();
    assert!(node.asks("a1").is_some());
    for ticket in ["b1", "c1", "a2", "b2"] {
        assert_eq!(node.asks(ticket), None);
    }
    let mut last = "a1";
    for next in ["b1", "c1", "a2", "b2"] {
        for name in ["a", "b", "c"] {
            assert_eq!(node.hears(name), [""; 0], "nobody has a turn before {next}");
        }
        node.leaves(last).unwrap();
        assert_eq!(node.hears(&next[..1]), [next]);
        last = next;
    }
    node.leaves("b2").unwrap();
    assert_eq!(node.turns.sizes(), (0, 0));
}

#[test]
fn people_are_told_who_has_the_turn_and_who_waits() {
    let mut node = Node::new();
    let told = |node: &Node| node.turns.of_session(&place(), node.mono());
    assert_eq!(told(&node), []);
    let number = node.asks("a1").unwrap();
    for ticket in ["b1", "c1", "a2", "b2", "c2", "a3"] {
        node.asks(ticket);
    }
    node.pass(500);
    let waiters = |tickets: [&str; 5]| {
        let view = |ticket: &str| WaiterView {
            worker: worker(&ticket[..1]),
            ticket: token(ticket),
            waited: Millis::new(500),
        };
        tickets.map(view).to_vec()
    };
    let mut expected = QueueView {
        server: server("tools"),
        holder: Some(HolderView {
            worker: worker("a"),
            ticket: token("a1"),
            number,
            held: Millis::new(500),
            left: Millis::new(1_500),
            is_offered: false,
            is_delegated: false,
        }),
        waiting: 6,
        next: waiters(["b1", "c1", "a2", "b2", "c2"]),
    };
    assert_eq!(told(&node), [expected.clone()]);
    let holder = |node: &Node| {
        node.turns
            .holder_of(&place(), &server("tools"), node.mono())
    };
    let held = TurnHolder {
        worker: worker("a"),
        held_for: Millis::new(500),
    };
    assert_eq!(holder(&node), Some(held), "renewals count from the grant");
    node.leaves("a1").unwrap();
    let [offered] = &told(&node)[..] else {
        panic!("one queue");
    };
    expected.holder = Some(HolderView {
        worker: worker("b"),
        ticket: token("b1"),
        number: number + 500_000,
        held: Millis::new(0),
        left: TURN_PICKUP,
        is_offered: true,
        is_delegated: false,
    });
    expected.waiting = 5;
    expected.next = waiters(["c1", "a2", "b2", "c2", "a3"]);
    assert_eq!(*offered, expected);
}

#[test]
fn numbers_grow_and_are_never_behind_the_wall_clock() {
    let mut node = Node::new();
    let first = node.asks("a1").unwrap();
    assert_eq!(first, (WALL + 5_000) * 1_000);
    node.leaves("a1").unwrap();
    assert_eq!(node.asks("a1"), Some(first + 1));
    node.leaves("a1").unwrap();
    node.pass(100);
    assert_eq!(node.asks("a1"), Some(first + 100_000));
    node.leaves("a1").unwrap();
    node.wall -= 3_600_000;
    assert_eq!(node.asks("a1"), Some(first + 100_001));
}

/// Numbers are in memory: what a restart or a failover forgets must be behind the clock, or it is given again.
#[test]
fn a_node_that_gives_thousands_of_turns_a_second_is_never_ahead_of_its_clock() {
    let mut node = Node::new();
    let mut last = 0;
    for _ in 0..10_000 {
        for _ in 0..3 {
            last = node.asks("a1").unwrap();
            node.leaves("a1").unwrap();
        }
        node.pass(1);
    }
    let after_a_restart = Timestamp::from_unix_ms(node.wall).least_number();
    assert!(last < after_a_restart, "{last} {after_a_restart}");
}

#[test]
fn the_same_ticket_renews_the_lease_and_keeps_the_number_and_a_waiter_its_place() {
    let mut node = Node::new();
    let number = node.asks("a1");
    node.asks("b1");
    node.asks("c1");
    node.pass(1_999);
    assert_eq!(node.asks("a1"), number);
    assert_eq!(node.asks("b1"), None);
    node.pass(1_999);
    assert!(node.is_held());
    assert_eq!(node.hears("b"), [""; 0]);
    node.leaves("a1").unwrap();
    assert_eq!(
        (node.hears("b"), node.hears("c")),
        (vec!["b1".to_owned()], vec![])
    );
}

#[test]
fn who_passed_its_turn_on_goes_first_and_the_first_among_them_before_the_second() {
    let mut node = Node::new();
    let first = |ticket| TurnRequest {
        line: Line::First,
        ..request(ticket)
    };
    node.asks("a1");
    node.asks("b1");
    node.asks("c1");
    node.enter(&first("d1")).unwrap();
    node.enter(&first("e1")).unwrap();
    // A waiter that says so now moves up, and says so in vain the second time.
    node.enter(&first("c1")).unwrap();
    node.enter(&first("d1")).unwrap();
    node.asks("d1");
    let mut order = Vec::new();
    let mut last = "a1".to_owned();
    for _ in 0..4 {
        node.leaves(&last).unwrap();
        last = ["b", "c", "d", "e"]
            .map(|name| node.hears(name))
            .concat()
            .concat();
        order.push(last.clone());
    }
    assert_eq!(order, ["d1", "e1", "c1", "b1"]);
}

#[test]
fn a_waiter_withdraws_and_who_has_nothing_is_stale() {
    let mut node = Node::new();
    assert_eq!(code(node.leaves("a1")), "STALE");
    node.asks("a1");
    node.asks("b1");
    node.asks("c1");
    assert_eq!(code(node.leaves("b1")), "OK");
    assert_eq!(code(node.leaves("b1")), "STALE");
    assert_eq!(code(node.leaves("d1")), "STALE");
    node.leaves("a1").unwrap();
    assert_eq!(
        (node.hears("b"), node.hears("c")),
        (vec![], vec!["c1".to_owned()])
    );
    assert_eq!(code(node.leaves("a1")), "STALE");
}

#[test]
fn a_full_queue_says_so_and_the_dead_make_room() {
    let mut node = Node::new();
    node.limits.queue_max = 3;
    node.asks("a1");
    for ticket in ["b1", "b2", "c1"] {
        node.asks(ticket);
    }
    let full = Err(Refusal::Limit {
        what: "turn-queue",
        value: 3,
    });
    assert_eq!(node.enter(&request("d1")), full);
    // Asking again needs no room.
    assert_eq!(node.asks("b1"), None);
    node.dies("b");
    node.pass(1_000);
    assert_eq!(node.asks("d1"), None);
    assert_eq!(node.asks("d2"), None);
    assert_eq!(node.enter(&request("d3")), full);
}

#[test]
fn the_node_has_a_bound_on_queues() {
    let mut node = Node::new();
    let place = |n: usize| SessionPlace::new(0, format!("s{n}").as_bytes());
    let tools = server("tools");
    for n in 0..TURN_QUEUES_MAX {
        let request = request("a1");
        node.with(|turns, context| turns.enter(&place(n), &tools, &request, context))
            .unwrap();
    }
    let request = request("a1");
    let outcome =
        node.with(|turns, context| turns.enter(&place(TURN_QUEUES_MAX), &tools, &request, context));
    assert_eq!(code(outcome), "LIMIT");
    let again = node.with(|turns, context| turns.enter(&place(0), &tools, &request, context));
    assert_eq!(code(again), "OK");
}

#[test]
fn queues_of_other_servers_sessions_and_databases_are_others() {
    let mut node = Node::new();
    let number = node.asks("a1");
    for (place, name) in [
        (place(), "other"),
        (SessionPlace::new(0, b"another key"), "tools"),
        (SessionPlace::new(1, &place().key), "tools"),
    ] {
        let request = request("a1");
        let entered =
            node.with(|turns, context| turns.enter(&place, &server(name), &request, context));
        assert_eq!(code(entered), "OK");
        assert!(node.turns.holds(&place, Some(&server(name)), node.mono()));
    }
    assert_eq!(node.asks("a1"), number);
    assert!(
        !node
            .turns
            .holds(&place(), Some(&server("third")), node.mono())
    );
}

#[test]
fn a_session_that_ends_takes_its_queues_along_and_tells_who_waits() {
    let mut node = Node::new();
    node.asks("a1");
    node.asks("b1");
    node.asks("b2");
    node.asks("c1");
    node.turns.drop_session(&place());
    assert_eq!(node.turns.sizes(), (0, 0));
    assert!(!node.is_held());
    assert_eq!(node.turns.next_deadline().map(|at| at.ms()), Some(0));
    node.advance();
    let heard = ["a", "b", "c"].map(|name| node.hears(name).concat());
    assert_eq!(heard, ["", "settled", "settled"]);
    assert_eq!(code(node.leaves("a1")), "STALE");
    assert_eq!(node.turns.next_deadline(), None);
}

#[test]
fn an_offer_goes_with_its_session_too() {
    let mut node = Node::new();
    node.asks("a1");
    node.asks("b1");
    node.leaves("a1").unwrap();
    node.turns.drop_session(&place());
    node.advance();
    assert_eq!(node.hears("b"), ["settled"]);
}

#[test]
fn a_database_that_is_flushed_takes_its_queues_along() {
    let mut node = Node::new();
    node.asks("a1");
    let other = SessionPlace::new(1, b"k");
    let request = request("a1");
    node.with(|turns, context| turns.enter(&other, &server("tools"), &request, context))
        .unwrap();
    node.turns.drop_database(0);
    assert!(!node.is_held());
    assert!(node.turns.holds(&other, None, node.mono()));
}

#[test]
fn what_was_counted_is_told() {
    let mut node = Node::new();
    node.asks("a1");
    node.asks("b1");
    node.asks("b1");
    node.asks("c1");
    node.leaves("a1").unwrap();
    node.hears("b");
    node.dies("b");
    let figures = node.turns.figures();
    assert_eq!((figures.granted, figures.waited, figures.lost), (3, 2, 1));
}

#[test]
fn ten_thousand_wait_and_each_has_its_turn() {
    let mut node = Node::new();
    node.limits.queue_max = 10_000;
    node.asks("a0");
    let tickets: Vec<String> = (0..10_000).map(|n| format!("b{n}")).collect();
    for ticket in &tickets {
        assert_eq!(node.asks(ticket), None);
    }
    let mut last = "a0".to_owned();
    for ticket in &tickets {
        node.leaves(&last).unwrap();
        assert_eq!(node.hears("b"), [ticket.as_str()]);
        last.clone_from(ticket);
    }
    let withdrawn = token("b9999");
    assert_eq!(withdrawn.as_str(), last);
}

/// A thousand dead waiters are passed over in bounded steps, and the turn stays where it is meanwhile: with nobody.
#[test]
fn the_dead_are_passed_over_step_by_step() {
    let mut node = Node::new();
    node.limits.queue_max = 5_000;
    node.asks("a1");
    for n in 0..4_000 {
        node.asks(&format!("b{n}"));
    }
    node.asks("c1");
    node.deaths.0.insert(worker("b"));
    node.leaves("a1").unwrap();
    assert_eq!(node.hears("c"), [""; 0]);
    assert_eq!(node.asks("d1"), None, "who comes now does not go before c1");
    node.advance();
    assert_eq!(node.hears("c"), ["c1"]);
}
