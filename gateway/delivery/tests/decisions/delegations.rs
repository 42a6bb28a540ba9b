//! The rows of the table of [`Delegations`], one after another, and what a [`Term`] covers.

use std::time::Duration;

use mooring_delivery::{
    BootTime, Delegations, TERM_MARGIN, Term, TurnBeginning, UNUSED_MAX, WAKE_UPS_SEEN_WITHIN,
    WakeUps,
};

const LEASE: Duration = Duration::from_millis(1_800);
const KEY: &str = "session";

fn at(ms: u64) -> BootTime {
    BootTime(Duration::from_millis(ms))
}

/// A table of turns with names, and of calls with numbers, whose wake-ups arrive.
#[derive(Default)]
struct Table(Delegations<&'static str, &'static str, u32>);

impl Table {
    /// How a call begins, in a word.
    fn begins(&mut self, call: u32, ms: u64) -> &'static str {
        self.begins_with(call, ms, WakeUps::SeenAt(at(ms)))
    }

    fn begins_with(&mut self, call: u32, ms: u64, wake_ups: WakeUps) -> &'static str {
        match self.0.begin(&KEY, &call, at(ms), wake_ups) {
            TurnBeginning::AskTurn => "asks for a turn",
            TurnBeginning::AskDelegation => "asks for a delegation",
            TurnBeginning::Use(turn) => {
                assert_eq!(turn, "turn");
                "uses the turn"
            }
            TurnBeginning::Renew(turn) => {
                assert_eq!(turn, "turn");
                "renews the turn"
            }
        }
    }

    /// A call ends. Its turn was asked for at 0.
    fn ends(&mut self, ms: u64) -> Option<&'static str> {
        (self.0).end(&KEY, "turn", Term::asked(at(0), LEASE), at(ms))
    }

    /// Call 1 runs under a delegation that it asked for at 0.
    fn in_use() -> Self {
        let mut table = Self::default();
        assert_eq!(table.begins(1, 0), "asks for a turn");
        assert_eq!(table.begins(1, 0), "asks for a turn");
        assert_eq!(table.begins(1, 0), "asks for a delegation");
        assert!(table.0.granted(&KEY, &1));
        assert_eq!(table.0.running(&KEY), Some(&1));
        table
    }

    /// Its call has ended at 100.
    fn idle() -> Self {
        let mut table = Self::in_use();
        assert_eq!(table.ends(100), None);
        assert_eq!(table.0.running(&KEY), None);
        table
    }

    /// Call 1 runs, and has to leave the turn when it ends.
    fn recalled() -> Self {
        let mut table = Self::in_use();
        assert_eq!(table.0.recall(&KEY), None);
        table
    }
}

#[test]
fn a_few_calls_within_a_moment_ask_for_a_delegation() {
    let pause = u64::try_from(UNUSED_MAX.as_millis()).unwrap();
    let mut table = Table::default();
    for ms in [0, pause] {
        assert_eq!(table.begins(1, ms), "asks for a turn");
    }
    assert_eq!(table.begins(1, 2 * pause), "asks for a delegation");
    // The counting begins again.
    let later = 3 * pause + 1;
    for ms in [later, later] {
        assert_eq!(table.begins(1, ms), "asks for a turn");
    }
    let stale = WakeUps::SeenAt(at(0));
    for wake_ups in [WakeUps::Broken, stale] {
        assert_eq!(table.begins_with(1, later, wake_ups), "asks for a turn");
    }
    assert_eq!(table.begins(1, later), "asks for a delegation");
}

#[test]
fn an_idle_delegation_is_used_while_its_term_is_sure() {
    let mut table = Table::idle();
    for ms in [200, 899] {
        assert_eq!(table.begins(2, ms), "uses the turn");
        assert_eq!(table.0.running(&KEY), Some(&2));
        assert_eq!(table.ends(ms), None);
    }
    // Half of the lease has passed.
    assert_eq!(table.begins(2, 900), "renews the turn");
    assert_eq!(table.0.running(&KEY), Some(&2));
    for wake_ups in [WakeUps::Broken, WakeUps::SeenAt(at(99))] {
        let mut table = Table::idle();
        assert_eq!(table.begins_with(2, 200, wake_ups), "renews the turn");
    }
}

#[test]
fn one_call_at_a_time_uses_it() {
    for mut table in [Table::in_use(), Table::recalled()] {
        assert_eq!(table.begins(2, 10), "asks for a turn");
        assert!(!table.0.granted(&KEY, &2), "the turn is that of call 2");
        assert_eq!(table.0.running(&KEY), Some(&1));
    }
}

/// The recall of the store may come late: the first call must not take the turn along to its next one.
#[test]
fn a_second_call_at_the_same_gateway_recalls_the_delegation() {
    let mut table = Table::in_use();
    assert_eq!(table.begins(2, 10), "asks for a turn");
    assert_eq!(table.ends(20), Some("turn"));
    assert!(table.0.is_empty());
}

#[test]
fn an_idle_delegation_that_is_recalled_is_left() {
    let mut table = Table::idle();
    assert_eq!(table.0.recall(&KEY), Some("turn"));
    assert!(table.0.is_empty());
    assert_eq!(table.0.recall(&KEY), None);
    assert_eq!(table.begins(2, 200), "asks for a turn");
}

#[test]
fn a_recalled_delegation_is_left_after_its_call() {
    let mut table = Table::recalled();
    assert_eq!(table.ends(100), Some("turn"));
    assert!(table.0.is_empty());
}

#[test]
fn a_call_that_keeps_its_turn_takes_it_out_of_the_table() {
    for mut table in [Table::in_use(), Table::recalled()] {
        table.0.keep(&KEY);
        assert!(table.0.is_empty());
        assert_eq!(table.begins(2, 10), "asks for a turn");
    }
}

#[test]
fn all_delegations_end_without_wake_ups() {
    let mut table = Table::idle();
    let lost = table.0.lose_wake_ups();
    assert_eq!((lost.idle, lost.running), (vec!["turn"], vec![]));
    assert!(table.0.is_empty());

    let mut table = Table::in_use();
    let lost = table.0.lose_wake_ups();
    assert_eq!((lost.idle, lost.running), (vec![], vec![1]));
    // If the call ends before it keeps its turn, nobody else gets it here.
    assert_eq!(table.begins(2, 10), "asks for a turn");
    assert_eq!(table.ends(100), Some("turn"));
    assert!(table.0.is_empty());
}

/// The recall and the reply that grants come over two connections.
#[test]
fn a_recall_that_overtakes_the_grant_is_obeyed() {
    type Event = fn(&mut Table);
    let events: [Event; 2] = [
        |table| assert_eq!(table.0.recall(&KEY), None),
        |table| drop(table.0.lose_wake_ups()),
    ];
    for event in events {
        let mut table = Table::default();
        assert_eq!(table.begins(1, 0), "asks for a turn");
        assert_eq!(table.begins(1, 0), "asks for a turn");
        assert_eq!(table.begins(1, 0), "asks for a delegation");
        event(&mut table);
        assert!(table.0.granted(&KEY, &1));
        assert_eq!(table.ends(100), Some("turn"));
    }
}

#[test]
fn what_is_not_used_is_swept() {
    let unused = u64::try_from(UNUSED_MAX.as_millis()).unwrap();
    let mut table = Table::idle();
    assert_eq!(table.0.sweep(at(100 + unused)), Vec::<&str>::new());
    assert_eq!(table.0.sweep(at(101 + unused)), ["turn"]);
    assert!(table.0.is_empty());

    let mut counted = Table::default();
    assert_eq!(counted.begins(1, 0), "asks for a turn");
    assert_eq!(counted.0.sweep(at(unused)), Vec::<&str>::new());
    assert!(!counted.0.is_empty());
    assert_eq!(counted.0.sweep(at(unused + 1)), Vec::<&str>::new());
    assert!(counted.0.is_empty());

    let mut running = Table::in_use();
    assert_eq!(running.0.sweep(at(60_000)), Vec::<&str>::new());
    assert_eq!(running.0.running(&KEY), Some(&1));
}

#[test]
fn a_full_table_gives_no_further_delegations() {
    let mut table: Delegations<u32, (), u32> = Delegations::default();
    let fresh = WakeUps::SeenAt(at(0));
    let count = 20_000;
    for key in 0..count {
        table.begin(&key, &1, at(0), fresh);
    }
    let last = count - 1;
    for _ in 0..9 {
        let begun = table.begin(&last, &1, at(0), fresh);
        assert!(matches!(begun, TurnBeginning::AskTurn));
    }
    assert!(!table.granted(&last, &1), "the turn is that of the call");
    table.begin(&0, &1, at(0), fresh);
    let begun = table.begin(&0, &1, at(0), fresh);
    assert!(matches!(begun, TurnBeginning::AskDelegation));
    assert!(table.granted(&0, &1));
}

#[test]
fn a_term_ends_before_the_lease_and_counts_from_before_the_question() {
    let term = Term::asked(at(1_000), LEASE);
    let ends = at(1_000).0 + LEASE.checked_sub(TERM_MARGIN).unwrap();
    assert_eq!(term.ends_at(), BootTime(ends));
    assert!(term.covers(at(1_000)));
    assert!(term.covers(BootTime(ends - Duration::from_millis(1))));
    assert!(!term.covers(BootTime(ends)));
    // A lease that is shorter than the margin covers nothing.
    assert!(!Term::asked(at(1_000), TERM_MARGIN).covers(at(1_000)));
}

#[test]
fn a_term_ends_before_the_store_can_count_the_gateway_as_dead() {
    let ttl = Duration::from_millis(1_500);
    let term = |beat_ms| Term::asked(at(1_000), LEASE).while_alive(at(beat_ms), ttl);
    let ends = at(500).0 + ttl.checked_sub(TERM_MARGIN).unwrap();
    assert!(term(500).covers(BootTime(ends - Duration::from_millis(1))));
    assert!(!term(500).covers(BootTime(ends)));
    // A later beat, or one that keeps it alive for long, does not extend the lease.
    assert_eq!(term(1_300), Term::asked(at(1_000), LEASE));
    // It is dead already.
    assert!(!term(0).covers(at(1_300)));
    assert!(
        !Term::asked(at(2_000), LEASE)
            .while_alive(at(0), ttl)
            .covers(at(2_000))
    );
}

#[test]
fn wake_ups_are_fresh_for_a_moment() {
    let now = BootTime(at(1_000).0 + WAKE_UPS_SEEN_WITHIN);
    assert!(WakeUps::SeenAt(at(1_000)).are_fresh(now));
    assert!(!WakeUps::SeenAt(at(999)).are_fresh(now));
    assert!(!WakeUps::Broken.are_fresh(now));
    assert_eq!(WakeUps::default(), WakeUps::Broken);
}
