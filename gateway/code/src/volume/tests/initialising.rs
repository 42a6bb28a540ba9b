//! Initialising: once, however many come at once, and without a lock ever after.

use std::sync::Barrier;
use std::thread;

use super::super::{MountManifest, Opening, TreeOrigin};
use super::processes::other;
use super::*;
use mooring_test_support::processes::TestProcess;

/// Processes that open one session at once.
const PROCESSES: usize = 4;
/// Sessions that they open one after another.
const ROUNDS: usize = 20;

#[test]
fn processes_that_open_a_session_at_once_initialise_it_once() {
    let fixture = Fixture::new();
    let mut others: Vec<TestProcess> = (0..PROCESSES)
        .map(|_| other("opens", &fixture.base))
        .collect();
    for other in &mut others {
        assert_eq!(other.hear(), "ready");
    }
    let mut made = 0;
    for round in 0..ROUNDS {
        for other in &mut others {
            other.tell(&format!("user{round}"));
        }
        let said: Vec<String> = others.iter_mut().map(TestProcess::hear).collect();
        let count = |word: &str| said.iter().filter(|said| said.starts_with(word)).count();
        assert_eq!(
            (count("initialised"), count("found")),
            (1, PROCESSES - 1),
            "{said:?}"
        );
        made += said.iter().filter(|said| said.ends_with("made")).count();
    }
    assert_eq!(made, 1, "the tools are made once for all sessions");
    assert_eq!(names(&fixture.base.join(".tools")).len(), 1);
    assert_eq!(names(&fixture.base.join("sandbox")).len(), ROUNDS);
    assert_eq!(fixture.in_trash(), [""; 0]);
}

#[test]
fn a_session_that_is_ready_is_opened_without_its_lock() {
    let fixture = Fixture::new();
    let alice = place_of("alice");
    let first = fixture.open(&alice, blank(1_000));
    assert_eq!(
        (first.opening, first.trees),
        (Opening::Initialised, TreeOrigin::Made)
    );
    assert!(first.lock_held.is_some());
    let handle = fixture.volume.session(&alice);
    let _held = handle.lock(Duration::ZERO).unwrap();
    let second = handle
        .open(blank(1_000), &nothing(&alice), Duration::ZERO)
        .unwrap();
    assert_eq!(
        (second.opening, second.trees),
        (Opening::Found, TreeOrigin::Found)
    );
    assert_eq!(second.lock_held, None);
}

#[test]
fn a_journal_that_waits_is_completed_under_the_lock() {
    let fixture = Fixture::new();
    let alice = place_of("alice");
    fixture.open(&alice, blank(1_000));
    std::fs::write(
        fixture.path(&alice).join(".mooring/journal.json.tmp"),
        "half",
    )
    .unwrap();
    assert_eq!(
        fixture.open(&alice, blank(1_000)).lock_held,
        None,
        "a half-written journal is none"
    );
    std::fs::write(fixture.path(&alice).join(".mooring/journal.json"), "").unwrap();
    let handle = fixture.volume.session(&alice);
    let _held = handle.lock(Duration::ZERO).unwrap();
    let busy = handle.open(blank(1_000), &nothing(&alice), Duration::ZERO);
    assert!(
        matches!(busy, Err(super::super::SessionOpenError::Lock(_))),
        "{busy:?}"
    );
}

#[test]
fn other_tools_are_mounted_once_and_the_files_stay() {
    let fixture = Fixture::new();
    let alice = place_of("alice");
    let handle = fixture.volume.session(&alice);
    let open = |mounted: &MountManifest| handle.open(blank(1_000), mounted, PATIENCE).unwrap();
    let (before, after) = (nothing(&alice), mounting::one_tool());
    open(&before);
    std::fs::write(fixture.path(&alice).join("results/kept"), "mine").unwrap();
    let remounted = open(&after);
    assert_eq!(
        (remounted.opening, remounted.trees),
        (Opening::Remounted, TreeOrigin::Made)
    );
    assert!(remounted.opening.sets_content_hash());
    assert_eq!(open(&after).lock_held, None);
    assert_eq!(open(&before).trees, TreeOrigin::Found);
    assert!(fixture.path(&alice).join("results/kept").exists());
}

#[test]
fn sessions_begin_while_empty_directories_are_swept() {
    let fixture = Fixture::new();
    let barrier = Barrier::new(2);
    let now_ms = super::super::unix_now_ms();
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..200 {
                barrier.wait();
                let opened = fixture.open(&place_of("alice"), blank(now_ms + round));
                drop(opened);
                barrier.wait();
                std::fs::remove_dir_all(fixture.path(&place_of("alice"))).unwrap();
            }
        });
        for _ in 0..200 {
            barrier.wait();
            let swept = fixture.volume.sweep(now_ms).unwrap();
            assert_eq!((swept.sessions, swept.failed), (0, 0));
            barrier.wait();
        }
    });
}
