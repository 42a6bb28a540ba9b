//! What an index costs in memory, and that it gives it back: the bytes that it asks of the allocator, which this test counts, so it has a process
//! of its own.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

#[path = "index/sessions.rs"]
#[allow(dead_code, reason = "the index's tests use all of it")]
mod sessions;
#[path = "support/mod.rs"]
mod support;

use mooring_session::index::Index;
use peak_alloc::PeakAlloc;
use sessions::{Edit, SEED, at, prefix_of, session};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

const SESSIONS: usize = 200_000;

/// As long as the keys of MCP sessions, which end in 34 random characters.
fn key(number: usize) -> Vec<u8> {
    format!("mcpgw:session_affinity:{number:034}").into_bytes()
}

/// Sessions with one binding, where every principal has `each` of them.
fn fill(index: &mut Index, each: usize) {
    for number in 0..SESSIONS {
        let owner = format!("user-{}@example.org", number / each);
        let now = 1_700_000_000_000 + number as u64 / 100;
        let instance = format!("http://10.0.0.{}:9000/mcp", number % 4);
        let record = session(&owner, now).bound("tools", &instance, "worker:boot", None);
        index.put(prefix_of(&key(number)), &key(number), &record, at(now));
    }
    assert_eq!(index.counts().active, SESSIONS as u64);
}

/// The bytes that a session takes, and those that are held once one session in `left_of` is left.
fn bytes(each: usize, left_of: usize) -> (usize, usize) {
    let before = ALLOCATOR.current_usage();
    let mut index = Index::new(SEED);
    fill(&mut index, each);
    let full = ALLOCATOR.current_usage() - before;
    let told = index.bytes();
    assert!(
        (full * 9 / 10..=full * 11 / 10).contains(&told),
        "{told} bytes are told, and {full} are taken"
    );
    for number in (0..SESSIONS).filter(|number| number % left_of != 0) {
        index.remove(&key(number));
    }
    assert_eq!(index.counts().active, (SESSIONS / left_of) as u64);
    (full / SESSIONS, ALLOCATOR.current_usage() - before)
}

#[test]
fn sessions_take_no_more_than_they_must_and_give_it_back() {
    let (shared, after_shared) = bytes(10, SESSIONS);
    let (own, after_own) = bytes(1, 1_000);
    assert!(
        shared <= 280,
        "{shared} bytes with ten sessions of a principal"
    );
    assert!(own <= 360, "{own} bytes with one session of a principal");
    assert!(
        after_shared <= 200_000,
        "{after_shared} bytes for one session"
    );
    assert!(after_own <= 2_500_000, "{after_own} bytes for 200 sessions");
}
