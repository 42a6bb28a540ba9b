//! What an index costs in memory: the bytes that it asks of the allocator, which this test counts, so it has a process
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

/// The bytes that a session with one binding takes, where every principal has `each` of them.
fn bytes_per_session(each: usize) -> usize {
    let before = ALLOCATOR.current_usage();
    let mut index = Index::new(SEED);
    for number in 0..SESSIONS {
        // As long as the keys of MCP sessions, which end in 34 random characters.
        let key = format!("mcpgw:session_affinity:{number:034}").into_bytes();
        let owner = format!("user-{}@example.org", number / each);
        let now = 1_700_000_000_000 + number as u64 / 100;
        let instance = format!("http://10.0.0.{}:9000/mcp", number % 4);
        let record = session(&owner, now).bound("tools", &instance, "worker:boot", None);
        index.put(prefix_of(&key), &key, &record, at(now));
    }
    let bytes = ALLOCATOR.current_usage() - before;
    assert_eq!(index.counts().active, SESSIONS as u64);
    bytes / SESSIONS
}

#[test]
fn a_session_with_one_binding_takes_no_more_than_it_must() {
    let shared = bytes_per_session(10);
    let own = bytes_per_session(1);
    assert!(
        shared <= 280,
        "{shared} bytes with ten sessions of a principal"
    );
    assert!(own <= 360, "{own} bytes with one session of a principal");
}
