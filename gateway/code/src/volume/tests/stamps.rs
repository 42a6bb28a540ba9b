//! Stamps: read back, replaced whole, and not believed where they say nothing.

use super::super::stamp::{self, Stamp, StampError};
use super::super::{Opening, SessionOpenError, unix_now_ms};
use super::*;

fn stamp_file(fixture: &Fixture, place: &CodePlace) -> PathBuf {
    fixture.path(place).join(".mooring/stamp.json")
}

#[test]
fn a_stamp_holds_what_the_contract_names() {
    let fixture = Fixture::new();
    let alice = place_of("alice");
    fixture.open(&alice, blank(4_321));
    let text = std::fs::read_to_string(stamp_file(&fixture, &alice)).unwrap();
    let stored: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(stored["version"], 1);
    assert_eq!(stored["gen"], 4_321);
    assert_eq!(
        stored["content_hash"],
        nothing(&alice).content_hash().as_str()
    );
    assert_eq!(stored["ttl_ms"], 900_000);
    assert_eq!(stored["used_while_away"], false);
    assert!(stored["used_at_ms"].as_u64().unwrap() > 1_700_000_000_000);
    assert!(!text.contains("alice"));
}

#[test]
fn a_use_moves_the_time_and_nothing_else() {
    let fixture = Fixture::new();
    let alice = place_of("alice");
    let opened = fixture.open(&alice, blank(1_000));
    let read = || stamp::read(opened.directory.root()).unwrap().unwrap();
    let before = read();
    let text = std::fs::read_to_string(stamp_file(&fixture, &alice)).unwrap();
    let later = unix_now_ms() + 5_000;
    stamp::touch(opened.directory.root(), later).unwrap();
    assert_eq!(
        read(),
        Stamp {
            used_at_ms: later,
            ..before
        }
    );
    assert_eq!(
        std::fs::read_to_string(stamp_file(&fixture, &alice)).unwrap(),
        text
    );
}

#[test]
fn a_session_has_the_time_to_live_of_its_server() {
    let fixture = Fixture::new();
    let alice = place_of("alice");
    let open = |seconds| {
        let handle = fixture
            .volume
            .session(&alice)
            .with_ttl(Duration::from_secs(seconds));
        handle
            .open(blank(1_000), &nothing(&alice), PATIENCE)
            .unwrap()
    };
    open(60);
    assert_eq!(open(60).lock_held, None);
    let changed = open(120);
    assert!(changed.lock_held.is_some() && changed.opening == Opening::Found);
    let stamp = stamp::read(changed.directory.root()).unwrap().unwrap();
    assert_eq!(stamp.ttl_ms, Some(120_000));
}

#[test]
fn a_stamp_that_says_nothing_is_replaced_and_a_newer_one_is_not() {
    let fixture = Fixture::new();
    let alice = place_of("alice");
    let now = unix_now_ms();
    fixture.open(&alice, blank(now));
    std::fs::write(fixture.path(&alice).join("scratch/kept"), "mine").unwrap();
    for nothing_said in [
        "",
        "{",
        "null",
        "{\"version\":1}",
        "{\"version\":\"x\"}",
        &"x".repeat(9_000),
    ] {
        std::fs::write(stamp_file(&fixture, &alice), nothing_said).unwrap();
        assert_eq!(
            fixture.open(&alice, blank(now)).opening,
            Opening::Adopted,
            "{nothing_said:.20}"
        );
        assert!(fixture.path(&alice).join("scratch/kept").exists());
    }
    std::fs::write(
        stamp_file(&fixture, &alice),
        "{\"version\":2,\"more\":true}",
    )
    .unwrap();
    let handle = fixture.volume.session(&alice);
    let newer = handle.open(blank(now), &nothing(&alice), PATIENCE);
    assert!(
        matches!(newer, Err(SessionOpenError::Stamp(StampError::Newer(2)))),
        "{newer:?}"
    );
    assert!(fixture.path(&alice).join("scratch/kept").exists());
}
