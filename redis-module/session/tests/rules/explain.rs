//! EXPLAIN: what stands under a key, in sentences, and no secret among them.

use mooring_session::Tuning;
use mooring_session::explain::explain;
use mooring_session::rules::{LossReport, Ownership, RebindRequest};
use mooring_session::time::Millis;
use mooring_session::turns::{HolderView, QueueView, WaiterView};

use crate::states::{NOW, State, a_rebind, slot_in};
use crate::support::{Command, instance, reason, server, token, worker};
use crate::{context, run_on};

/// The text on a record, with the length of a secret as its digest.
fn text(record: &mooring_session::record::Record, queues: &[QueueView], now: u64) -> String {
    let tuning = Tuning::default();
    let digest = |secret: &[u8]| format!("<{}>", secret.len());
    explain(record, "<2>", queues, &digest, &context(now, &tuning)).join("\n")
}

#[track_caller]
fn check(state: State, expected: &str) {
    let record = slot_in(state).unwrap();
    assert_eq!(text(&record, &[], NOW), expected, "{state:?}");
}

fn waiter(name: &str) -> WaiterView {
    WaiterView {
        worker: worker(name),
        ticket: token("secret"),
        waited: Millis::new(250),
    }
}

#[test]
fn every_state_has_its_sentences() {
    check(
        State::Active,
        "\
session <2> (digest) of alice is active, generation 999500000
created 500 ms ago, last used within the last 500 ms, expires in 15 s unless it is used
next, in 15 s: the session expires unless it is used",
    );
    check(
        State::Claimed,
        "\
session <2> (digest) of alice is active, generation 999500000
created 500 ms ago, last used within the last 500 ms, expires in 15 s unless it is used
tools: claimed by holder:1 for a 400 ms ago, lapses in 4 s, epoch 999600000
next, in 4 s: the claim on tools lapses",
    );
    check(
        State::Lapsed,
        "\
session <2> (digest) of alice is active, generation 999500000
created 500 ms ago, last used within the last 500 ms, expires in 15 s unless it is used
tools: orphaned: holder:1 did not initialize a within its lease, epoch 999600000
\x20   the next request to it rebinds it
next, in 15 s: the session expires unless it is used",
    );
    check(
        State::Bound,
        "\
session <2> (digest) of alice is active, generation 999500000
created 500 ms ago, last used within the last 500 ms, expires in 15 s unless it is used
tools: bound to a for 400 ms, epoch 999600000
\x20   any worker may call it; holder:1 did last
\x20   upstream session <2> (digest)
next, in 15 s: the session expires unless it is used",
    );
    check(
        State::Owned,
        "\
session <2> (digest) of alice is active, generation 999500000
created 500 ms ago, last used within the last 500 ms, expires in 15 s unless it is used
tools: bound to a for 400 ms, epoch 999600000
\x20   owner holder:1 at 10.0.0.1:4000 is alive; only it can call the instance
\x20   upstream session <2> (digest)
next, in 15 s: the session expires unless it is used",
    );
    check(
        State::OwnedByTheDead,
        "\
session <2> (digest) of alice is active, generation 999500000
created 500 ms ago, last used within the last 500 ms, expires in 15 s unless it is used
tools: orphaned at a: its owner is dead, epoch 999600000
\x20   the next request to it rebinds it
\x20   owner dead:1 is dead
\x20   upstream session <2> (digest)
next, in 15 s: the session expires unless it is used",
    );
    check(
        State::OwnedByTheDraining,
        "\
session <2> (digest) of alice is active, generation 999500000
created 500 ms ago, last used within the last 500 ms, expires in 15 s unless it is used
tools: bound to a for 400 ms, epoch 999600000
\x20   owner draining:1 is draining; only it can call the instance
\x20   upstream session <2> (digest)
next, in 15 s: the session expires unless it is used",
    );
    check(
        State::ExpiredBound,
        "\
session <2> (digest) of alice is expired, generation 980000000
created 20 s ago, last used 19 s to 20 s ago, expired 3 s ago
waits for a worker that cleans it up
tools: bound to a for 19 s, epoch 980100000
\x20   any worker may call it; holder:1 did last
\x20   upstream session <2> (digest)
next, in 9 min: the key is dropped",
    );
    check(
        State::Ended,
        "\
session <2> (digest) of alice is ended, generation 999500000
created 500 ms ago, last used 200 ms ago, ended 200 ms ago
the caller of END cleans it up, for at most 29 s
next, in 29 s: the key is dropped",
    );
    check(
        State::Cleaned,
        "\
session <2> (digest) of alice is ended, generation 999500000
created 500 ms ago, last used 200 ms ago, ended 200 ms ago
holder:1 cleans it up, for at most 4 s
tools: bound to a for 400 ms, epoch 999600000
\x20   any worker may call it; holder:1 did last
\x20   upstream session <2> (digest)
next, in 4 s: another worker may clean it up",
    );
}

#[test]
fn losses_and_turns_are_told_and_no_secret_is() {
    let mut slot = slot_in(State::Bound);
    let rebind = RebindRequest {
        instances: vec![instance("b")],
        reason: Some(reason("HTTP 404")),
        ownership: Ownership::Owned,
        report: LossReport::ByNextCall,
        ..a_rebind()
    };
    run_on(&mut slot, &Command::Rebind(rebind), NOW).unwrap();
    let queues = [
        QueueView {
            server: server("code"),
            holder: None,
            waiting: 1,
            next: vec![waiter("caller:1")],
        },
        QueueView {
            server: server("tools"),
            holder: Some(HolderView {
                worker: worker("holder:1"),
                ticket: token("secret"),
                number: 7,
                held: Millis::new(500),
                left: Millis::new(1_500),
                is_offered: false,
                is_delegated: false,
            }),
            waiting: 3,
            next: vec![waiter("caller:1"), waiter("dead:1")],
        },
        QueueView {
            server: server("web"),
            holder: Some(HolderView {
                worker: worker("caller:1"),
                ticket: token("secret"),
                number: 8,
                held: Millis::new(500),
                left: Millis::new(1_800),
                is_offered: false,
                is_delegated: true,
            }),
            waiting: 0,
            next: Vec::new(),
        },
    ];
    let shown = text(&slot.unwrap(), &queues, NOW + 2_000);
    assert_eq!(
        shown,
        "\
session <2> (digest) of alice is active, generation 999500000
created 2 s ago, last used 1500 ms to 2 s ago, expires in 13 s unless it is used
tools: claimed by caller:1 for b 2 s ago, lapses in 3 s, epoch 1000000000
\x20   owner caller:1 is alive; only it can call the instance
\x20   rebinds: 1, the last 2 s ago: HTTP 404
\x20   upstream session <2> (digest) was left behind
\x20   the state at a was lost; the next reply tells the client
\x20   turn 7 is held by holder:1, lapses in 1500 ms unless it is renewed
\x20   3 wait for the turn: caller:1, dead:1 and 1 more
code: not bound
\x20   1 wait for the turn: caller:1
web: not bound
\x20   turn 8 is delegated to all calls of caller:1, lapses in 1800 ms unless it is renewed
next, in 1500 ms: the turn at tools lapses and passes to caller:1"
    );
}
