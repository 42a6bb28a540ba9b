//! REAP over more tombstones than one call looks at: what is asked for is found, whatever lies before it.

use std::collections::BTreeSet;

use mooring_session::index::{Glob, Index, Reaper};
use mooring_session::limits::{DUE_EXAMINED_MAX, REAP_ROUNDS_MAX};
use mooring_session::record::Record;

use crate::sessions::{Crew, Edit, SEED, at, prefix_of, session};
use crate::support::worker;

const NOW: u64 = 1_000_000_000_000;
/// So many that one call cannot look at a third of them.
const FOREIGN: usize = 3 * DUE_EXAMINED_MAX + 1;
/// Calls within which everything that is due has been looked at, and the front again.
const CALLS_MAX: usize = FOREIGN / (DUE_EXAMINED_MAX / 2) + 2;
const OURS: &str = "mcpgw:code_exec_session:";

fn put(index: &mut Index, key: &str, record: &Record) {
    let key = key.as_bytes();
    index.put(prefix_of(key), key, record, at(NOW));
}

fn due(index: &mut Index, pattern: Option<&str>, count: usize, alive: &Crew) -> Vec<String> {
    let reaper = Reaper {
        worker: &worker("w:1"),
        workers: alive,
        now: at(NOW),
        pattern: pattern.map(|pattern| Glob::parse(pattern.as_bytes()).unwrap()),
        count,
    };
    let keys = index.due(&reaper, |_| true).into_iter();
    keys.map(|key| String::from_utf8(key.to_vec()).unwrap())
        .collect()
}

/// Everything that calls for a pattern name until they have gone round.
fn round(index: &mut Index, pattern: &str, count: usize, alive: &Crew) -> BTreeSet<String> {
    (0..CALLS_MAX)
        .flat_map(|_| due(index, Some(pattern), count, alive))
        .collect()
}

/// Tombstones of others, and behind them three of ours.
fn behind_others(foreign: impl Fn(Record) -> Record) -> (Index, BTreeSet<String>) {
    let mut index = Index::new(SEED);
    for number in 0..FOREIGN {
        let record = foreign(session("bob", NOW).mounted().ended());
        put(&mut index, &format!("mcpgw:other:{number}"), &record);
    }
    let ours: BTreeSet<String> = (0..3).map(|number| format!("{OURS}{number}")).collect();
    for key in &ours {
        put(&mut index, key, &session("bob", NOW).mounted().ended());
    }
    (index, ours)
}

#[test]
fn what_lies_behind_the_tombstones_of_others_is_named() {
    let pattern = format!("{OURS}*");
    let nobody = Crew::of(&[]);
    for count in [1, 2, 100] {
        let (mut index, ours) = behind_others(|record| record);
        assert_eq!(
            due(&mut index, Some(&pattern), count, &nobody),
            [""; 0],
            "one call does not come so far"
        );
        assert_eq!(round(&mut index, &pattern, count, &nobody), ours, "{count}");
    }
}

#[test]
fn what_lies_behind_the_reapers_own_is_named_too() {
    let pattern = format!("{OURS}*");
    let alive = Crew::of(&["w:1"]);
    let (mut index, ours) =
        behind_others(|record| record.bound("tools", "http://1", "w:1", Some("w:1")));
    assert_eq!(round(&mut index, &pattern, 100, &alive), ours);
}

#[test]
fn those_who_ask_for_other_patterns_hold_nobody_up() {
    let (mut index, ours) = behind_others(|record| record);
    let nobody = Crew::of(&[]);
    let mut named = BTreeSet::new();
    for call in 0..CALLS_MAX {
        // As many as are remembered, and one more.
        let other = format!("mcpgw:none:{}:*", call % (REAP_ROUNDS_MAX - 2));
        assert_eq!(due(&mut index, Some(&other), 10, &nobody), [""; 0]);
        assert_eq!(due(&mut index, None, 10, &nobody).len(), 10);
        named.extend(due(&mut index, Some(&format!("{OURS}*")), 10, &nobody));
    }
    assert_eq!(named, ours);
}

#[test]
fn a_costly_pattern_comes_round_in_small_steps() {
    let mut index = Index::new(SEED);
    let long = "a".repeat(500);
    for number in 0..100 {
        let record = session("bob", NOW).mounted().ended();
        put(&mut index, &format!("mcpgw:{long}{number}"), &record);
    }
    put(
        &mut index,
        "mcpgw:b",
        &session("bob", NOW).mounted().ended(),
    );
    let pattern = format!("*{}b", "a*".repeat(100));
    let nobody = Crew::of(&[]);
    assert_eq!(due(&mut index, Some(&pattern), 10, &nobody), [""; 0]);
    let wanted = format!("mcpgw:{}b", "a".repeat(100));
    put(&mut index, &wanted, &session("bob", NOW).mounted().ended());
    let named: BTreeSet<String> = (0..100)
        .flat_map(|_| due(&mut index, Some(&pattern), 10, &nobody))
        .collect();
    assert_eq!(named, BTreeSet::from([wanted]));
}
