//! The sweep: what is old goes, what is young, used or somebody else's stays.

use super::super::directory::millis;
use super::super::{SweepOutcome, unix_now_ms};
use super::*;

fn after(times: u64) -> u64 {
    unix_now_ms() + times * millis(TTL) + 1_000
}

#[test]
fn a_session_goes_when_it_was_not_used_for_twice_its_time_to_live() {
    let fixture = Fixture::new();
    let alice = place_of("alice");
    fixture.open(&alice, blank(1_000));
    assert_eq!(
        fixture.volume.sweep(after(1)).unwrap(),
        SweepOutcome::default()
    );
    let swept = fixture.volume.sweep(after(2)).unwrap();
    // Its directory, the tools that only it had, and the directories of its user and its server.
    assert_eq!(
        swept,
        SweepOutcome {
            sessions: 1,
            trees: 1,
            directories: 2,
            in_use: 0,
            failed: 0
        }
    );
    assert!(!fixture.base.join("sandbox").exists());
    assert_eq!(fixture.in_trash().len(), 2);
    assert_eq!(
        fixture.volume.sweep(after(2)).unwrap(),
        SweepOutcome::default()
    );
}

#[test]
fn a_session_in_use_stays() {
    let fixture = Fixture::new();
    let alice = place_of("alice");
    fixture.open(&alice, blank(1_000));
    let lock = fixture.volume.session(&alice).lock(Duration::ZERO).unwrap();
    let swept = fixture.volume.sweep(after(2)).unwrap();
    assert_eq!((swept.sessions, swept.in_use, swept.failed), (0, 1, 0));
    assert!(fixture.path(&alice).exists());
    drop(lock);
    assert_eq!(fixture.volume.sweep(after(2)).unwrap().sessions, 1);
}

#[test]
fn a_longer_time_to_live_of_its_own_is_kept() {
    let fixture = Fixture::new();
    let alice = place_of("alice");
    let handle = fixture.volume.session(&alice).with_ttl(10 * TTL);
    handle
        .open(blank(1_000), &nothing(&alice), PATIENCE)
        .unwrap();
    assert_eq!(fixture.volume.sweep(after(19)).unwrap().sessions, 0);
    assert_eq!(fixture.volume.sweep(after(20)).unwrap().sessions, 1);
}

#[test]
fn a_use_keeps_a_session_and_its_tools() {
    let fixture = Fixture::new();
    let (alice, bob) = (place_of("alice"), place_of("bob"));
    let opened = fixture.open(&alice, blank(1_000));
    fixture.open(&bob, blank(1_000));
    super::super::stamp::touch(opened.directory.root(), after(2)).unwrap();
    let swept = fixture.volume.sweep(after(2)).unwrap();
    assert_eq!((swept.sessions, swept.trees), (1, 0));
    assert!(fixture.path(&alice).exists() && !fixture.path(&bob).exists());
}

#[test]
fn what_is_not_the_gateways_stays() {
    let fixture = Fixture::new();
    let foreign = [
        "lost+found",
        "sandbox/alice/0123456789abcdef01234567",
        "sandbox/alice-0123456789abcdef/somebody",
        ".hidden/x",
        ".runs/sandbox",
    ];
    for path in foreign {
        std::fs::create_dir_all(fixture.base.join(path)).unwrap();
    }
    std::fs::write(fixture.base.join("file"), "x").unwrap();
    std::os::unix::fs::symlink("/", fixture.base.join("link")).unwrap();
    let swept = fixture.volume.sweep(u64::MAX).unwrap();
    assert_eq!((swept.sessions, swept.directories, swept.failed), (0, 0, 0));
    for path in foreign.into_iter().chain(["file", "link"]) {
        assert!(fixture.base.join(path).symlink_metadata().is_ok(), "{path}");
    }
}

#[test]
fn tools_that_were_swept_are_made_again() {
    let fixture = Fixture::new();
    let alice = place_of("alice");
    let opened = fixture.open(&alice, blank(1_000));
    let hash = opened.content_hash.as_str();
    std::fs::rename(
        fixture.base.join(".tools").join(hash),
        fixture.base.join(".trash/tools-gone"),
    )
    .unwrap();
    let again = fixture.open(&alice, blank(1_000));
    assert_eq!(
        (again.lock_held, again.trees),
        (None, super::super::TreeOrigin::Made)
    );
}
