//! Processes that are killed: the next one works.

use super::super::{LockError, Opening};
use super::processes::other;
use super::*;

/// How often an initialising process is killed at a moment of chance.
const KILLS: usize = 15;

#[test]
fn a_process_killed_while_it_holds_the_lock_lets_go_of_it() {
    let fixture = Fixture::new();
    let alice = place_of("alice");
    let mut holder = other("holds", &fixture.base);
    holder.tell("alice");
    assert_eq!(holder.hear(), "locked");
    let handle = fixture.volume.session(&alice);
    let busy = handle.lock(Duration::ZERO);
    assert!(matches!(busy, Err(LockError::Busy { .. })), "{busy:?}");
    holder.kill();
    handle.lock(PATIENCE).unwrap();
    assert_eq!(
        fixture.open(&alice, blank(1_000)).opening,
        Opening::Initialised
    );
}

#[test]
fn a_process_killed_in_mid_initialisation_is_followed_by_the_next() {
    let fixture = Fixture::new();
    let alice = place_of("alice");
    let mut maker = other("half-made", &fixture.base);
    maker.tell("alice");
    assert_eq!(maker.hear(), "half made");
    maker.kill();
    let opened = fixture.open(&alice, blank(1_000));
    assert_eq!(opened.opening, Opening::Initialised);
    assert_eq!(
        names(&fixture.path(&alice)),
        [".mooring", "results", "scratch"]
    );
    assert!(
        !fixture
            .path(&alice)
            .join(".mooring/stamp.json.tmp")
            .exists()
    );
    assert_eq!(fixture.open(&alice, blank(1_000)).opening, Opening::Found);
    // What it left of a tree of tools goes when it is old.
    let later = super::super::unix_now_ms() + 3 * super::super::directory::millis(TTL);
    assert!(fixture.base.join(".tools/.new-half").exists());
    fixture.volume.sweep(later).unwrap();
    assert!(!fixture.base.join(".tools/.new-half").exists());
}

#[test]
fn wherever_an_initialising_process_is_killed_the_next_one_works() {
    let fixture = Fixture::new();
    for round in 0..KILLS {
        let mut other = other("opens", &fixture.base);
        assert_eq!(other.hear(), "ready");
        for session in 0..40 {
            other.tell(&format!("user{round}-{session}"));
        }
        for _ in 0..round {
            other.hear();
        }
        other.kill();
        for session in 0..40 {
            let place = place_of(&format!("user{round}-{session}"));
            let opened = fixture.open(&place, blank(1_000));
            assert!(matches!(
                opened.opening,
                Opening::Found | Opening::Initialised
            ));
            assert_eq!(
                names(&fixture.path(&place)),
                [".mooring", "results", "scratch"]
            );
        }
    }
    assert_eq!(fixture.in_trash(), [""; 0]);
}
