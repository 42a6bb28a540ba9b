//! A reaper, in a process of its own, races with a client that returns.
//!
//! The client's record is revived with the next generation at the moment at which the reaper cleans up after the one
//! before. Whichever comes first: the client's directory is there afterwards with what it wrote, and the old one is not.

use super::super::{Opening, RetireOutcome, unix_now_ms};
use super::processes::other;
use super::*;

const ROUNDS: u64 = 1_000;

#[test]
fn a_reaper_that_races_with_a_returning_client_never_takes_what_lives_nor_leaves_what_does_not() {
    let fixture = Fixture::new();
    let alice = place_of("alice");
    let handle = fixture.volume.session(&alice);
    let mounted = nothing(&alice);
    let mut reaper = other("reaps", &fixture.base);
    reaper.tell("alice");
    assert_eq!(reaper.hear(), "ready");
    let began = unix_now_ms();
    let incarnation = |round: u64| recorded(round, began);
    let file = fixture.path(&alice).join("scratch/generation");
    let (mut moved, mut taken_over) = (0, 0);
    handle.open(incarnation(1), &mounted, PATIENCE).unwrap();
    std::fs::write(&file, "1").unwrap();
    for round in 2..=ROUNDS + 1 {
        reaper.tell(&(round - 1).to_string());
        // The client comes a little later each time, and then a little earlier again.
        for _ in 0..(round % 50) * 400 {
            std::hint::spin_loop();
        }
        let opened = handle.open(incarnation(round), &mounted, PATIENCE).unwrap();
        assert!(matches!(
            opened.opening,
            Opening::Initialised | Opening::BegunAnew
        ));
        assert!(!file.exists(), "round {round}: what is over is still there");
        // It writes as a run does: under the lock, in the directory that it sees there.
        let lock = handle.lock(PATIENCE).unwrap();
        let opened = handle
            .open_locked(&lock, incarnation(round), &mounted)
            .unwrap();
        assert_eq!(opened.opening, Opening::Found, "round {round}");
        std::fs::write(&file, round.to_string()).unwrap();
        drop(lock);
        match reaper.hear().as_str() {
            "moved" => moved += 1,
            "taken over" => taken_over += 1,
            "absent" | "in use" => {}
            other => panic!("{other}"),
        }
        let seen = std::fs::read_to_string(&file).expect("what lives is there");
        assert_eq!(seen, round.to_string());
        assert!(
            fixture.in_trash().len() <= 1,
            "round {round}: {:?}",
            fixture.in_trash()
        );
        fixture.volume.empty_trash(usize::MAX).unwrap();
    }
    assert!(
        moved > 0 && taken_over > 0,
        "no race: {moved} moved, {taken_over} taken over"
    );
    assert_eq!(
        fixture.volume.retire(&alice, ROUNDS).unwrap(),
        RetireOutcome::TakenOver
    );
    assert_eq!(
        fixture.volume.retire(&alice, ROUNDS + 1).unwrap(),
        RetireOutcome::Moved
    );
    assert_eq!(
        fixture.volume.retire(&alice, ROUNDS + 1).unwrap(),
        RetireOutcome::Absent
    );
    assert!(
        !fixture.base.join("sandbox").exists(),
        "no empty directory is left"
    );
    fixture.volume.empty_trash(usize::MAX).unwrap();
    assert_eq!(fixture.in_trash(), [""; 0]);
}

#[test]
fn what_is_in_use_is_not_retired() {
    let fixture = Fixture::new();
    let alice = place_of("alice");
    fixture.open(&alice, recorded(5, 1_000));
    let lock = fixture.volume.session(&alice).lock(Duration::ZERO).unwrap();
    assert_eq!(
        fixture.volume.retire(&alice, 5).unwrap(),
        RetireOutcome::InUse
    );
    drop(lock);
    // Used while the store was away, it is not over because its record is.
    fixture.open(&alice, Incarnation::StoreAway);
    assert_eq!(
        fixture.volume.retire(&alice, 5).unwrap(),
        RetireOutcome::InUse
    );
    fixture.open(&alice, recorded(5, 1_000));
    // A stamp that says nothing may be that of a later incarnation.
    let stamp = fixture.path(&alice).join(".mooring/stamp.json");
    std::fs::write(&stamp, "").unwrap();
    assert_eq!(
        fixture.volume.retire(&alice, 5).unwrap(),
        RetireOutcome::InUse
    );
    fixture.open(&alice, recorded(5, 1_000));
    assert_eq!(
        fixture.volume.retire(&alice, 5).unwrap(),
        RetireOutcome::Moved
    );
}
