//! Key files: their format, their permissions, and generating them.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::Barrier;

use super::*;

fn key(digit: char) -> String {
    String::from(digit).repeat(64)
}

fn tag(ring: &KeyRing) -> [u8; 32] {
    ring.derive(Purpose::PeerAuthority).next().unwrap()
}

#[track_caller]
fn check(text: &str, keys: usize) {
    let ring = KeyRing::parse(text.as_bytes());
    assert_eq!(ring.map(|ring| ring.count()), Ok(keys));
}

#[track_caller]
fn check_refused(text: &str, problem: &str) {
    let ring = KeyRing::parse(text.as_bytes());
    assert_eq!(ring.map(|ring| ring.count()), Err(problem.to_owned()));
}

#[test]
fn a_file_has_a_key_a_line() {
    let (a, b) = (key('a'), key('B'));
    check(&a, 1);
    check(&format!("# current\n{a}\r\n\n  # old\n\t{b} \n"), 2);
    check(&format!("{a}{a}"), 1);
    check(&format!("{a}\n").repeat(8), 8);
    for empty in ["", "# nothing\n\n"] {
        check_refused(empty, " has no key");
    }
    for (text, line) in [
        (format!("{a}\nzz"), 2),
        (format!("{a}0"), 1),
        (format!("{a} # mine"), 1),
        ("k\u{e9}y".to_owned(), 1),
    ] {
        let problem = "a key is an even number of hexadecimal digits, alone on its line";
        check_refused(&text, &format!(", line {line}: {problem}"));
    }
    let shorter = ", line 1: the key is shorter than 64 hexadecimal digits";
    check_refused(&a[2..], shorter);
    let longer = ", line 1: the key is longer than 128 hexadecimal digits";
    check_refused(&format!("{a}{b}00"), longer);
    check_refused(&format!("{a}\n").repeat(9), ", line 9: more than 8 keys");
}

#[test]
fn hexadecimal_digits_are_bytes() {
    let line = b"00ff10aB".repeat(8);
    assert_eq!(parse_key(&line), Ok([0, 255, 16, 171].repeat(8)));
}

#[test]
fn the_first_key_signs() {
    let parse = |text: String| KeyRing::parse(text.as_bytes()).unwrap();
    let (a, b) = (key('a'), key('b'));
    assert_eq!(tag(&parse(format!("{a}\n{b}"))), tag(&parse(a.clone())));
    assert_ne!(tag(&parse(format!("{b}\n{a}"))), tag(&parse(a)));
}

#[test]
fn nothing_shows_a_key() {
    let secret = key('a');
    let ring = KeyRing::parse(secret.as_bytes()).unwrap();
    assert_eq!(format!("{ring:?}"), "KeyRing(1 key)");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("keys");
    fs::write(&path, format!("{secret}\n{secret}0\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let error = KeyRing::read(&path).unwrap_err();
    assert!(error.to_string().contains("keys, line 2: "), "{error}");
    assert!(!format!("{error:?} {error}").contains("aaaa"));
}

#[test]
fn a_file_that_others_can_read_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("keys");
    fs::write(&path, key('a')).unwrap();
    let is_roots = fs::metadata(&path).unwrap().uid() == 0;
    for (mode, is_taken) in [
        (0o600, true),
        (0o400, true),
        (0o640, is_roots),
        (0o440, is_roots),
        (0o660, false),
        (0o644, false),
        (0o604, false),
        (0o601, false),
    ] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        match KeyRing::read(&path) {
            Ok(_) => assert!(is_taken, "{mode:o}"),
            Err(error) => {
                assert!(!is_taken, "{mode:o}");
                let text = error.to_string();
                assert!(text.contains(&format!(" has mode {mode:04o}: ")), "{text}");
            }
        }
    }
}

#[test]
fn what_is_no_key_file_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let refused = |path: &Path, problem: &str| {
        let error = KeyRing::read(path).unwrap_err().to_string();
        assert!(error.contains(problem), "{error}");
    };
    refused(&directory.path().join("absent"), "cannot open the key file");
    refused(directory.path(), "is not a regular file");
    let pipe = directory.path().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, 0o600.into()).unwrap();
    refused(&pipe, "is not a regular file");
    let large = directory.path().join("large");
    fs::write(&large, "#".repeat(64 * 1024 + 1)).unwrap();
    fs::set_permissions(&large, fs::Permissions::from_mode(0o600)).unwrap();
    refused(&large, "is larger than 65536 bytes");
    fs::write(&large, "#".repeat(64 * 1024)).unwrap();
    refused(&large, "has no key");
}

#[test]
fn whoever_generates_at_the_same_time_ends_with_the_same_key() {
    const RACERS: usize = 8;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("keys");
    let barrier = Barrier::new(RACERS);
    let tags: Vec<_> = std::thread::scope(|scope| {
        let racers: Vec<_> = (0..RACERS)
            .map(|_| {
                scope.spawn(|| {
                    barrier.wait();
                    tag(&KeyRing::read_or_generate(&path).unwrap())
                })
            })
            .collect();
        racers
            .into_iter()
            .map(|racer| racer.join().unwrap())
            .collect()
    });
    assert!(tags.iter().all(|one| *one == tags[0]));
    assert_eq!(tag(&KeyRing::read_or_generate(&path).unwrap()), tags[0]);
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
    let names: Vec<_> = fs::read_dir(directory.path()).unwrap().collect();
    assert_eq!(names.len(), 1, "no other file is left");
    let other = directory.path().join("other");
    assert_ne!(tag(&KeyRing::read_or_generate(&other).unwrap()), tags[0]);
}

#[test]
fn a_file_that_is_refused_is_not_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("keys");
    fs::write(&path, "").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    assert!(KeyRing::read_or_generate(&path).is_err());
    assert_eq!(fs::read(&path).unwrap(), b"");
}
