//! The lock of a session: one at a time, bounded waits, one file for ever.

use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::thread;

use super::super::lock::FileLock;
use super::super::{LockError, SessionOpenError};
use super::*;

#[test]
fn a_wait_for_the_lock_is_bounded_and_says_so() {
    let fixture = Fixture::new();
    let handle = fixture.volume.session(&place_of("alice"));
    let held = handle.lock(Duration::ZERO).unwrap();
    for wait_ms in [0, 1, 40] {
        match handle.lock(Duration::from_millis(wait_ms)) {
            Err(LockError::Busy { waited_ms }) => assert!(waited_ms >= wait_ms),
            other => panic!("{other:?}"),
        }
    }
    drop(held);
    handle.lock(Duration::ZERO).unwrap();
}

#[test]
fn the_locks_of_two_sessions_are_two() {
    let fixture = Fixture::new();
    let (alice, bob) = (place_of("alice"), place_of("bob"));
    let lock = fixture.volume.session(&alice).lock(Duration::ZERO).unwrap();
    let handle = fixture.volume.session(&bob);
    let _other = handle.lock(Duration::ZERO).unwrap();
    let foreign = handle.open_locked(&lock, blank(1_000), &nothing(&bob));
    assert!(
        matches!(foreign, Err(SessionOpenError::ForeignLock)),
        "{foreign:?}"
    );
}

#[test]
fn whoever_waits_gets_the_lock_when_it_is_let_go_of() {
    let fixture = Fixture::new();
    let handle = fixture.volume.session(&place_of("alice"));
    let held = handle.lock(Duration::ZERO).unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| handle.lock(PATIENCE).map(drop));
        drop(held);
        waiter.join().unwrap().unwrap();
    });
}

#[test]
fn a_lock_that_is_let_go_of_is_free_although_a_forked_child_still_shares_it() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let open = || OwnedFd::from(std::fs::File::open(file.path()).unwrap());
    let (first, second) = (open(), open());
    let shared = first.try_clone().unwrap();
    let take = |file| FileLock::take(file, Duration::ZERO).unwrap();
    let locked = take(first).unwrap();
    assert!(take(second).is_none());
    drop(locked);
    assert!(take(open()).is_some());
    drop(shared);
}

#[test]
fn the_lock_file_outlives_the_session() {
    let fixture = Fixture::new();
    let alice = place_of("alice");
    fixture.open(&alice, recorded(5, 1_000));
    let file = fixture.base.join(".locks/sandbox").join(alice.id.as_str());
    let before = std::fs::metadata(&file).unwrap().ino();
    fixture.volume.retire(&alice, 5).unwrap();
    fixture.volume.sweep(u64::MAX).unwrap();
    fixture.open(&alice, recorded(6, 1_000));
    assert_eq!(std::fs::metadata(&file).unwrap().ino(), before);
}
