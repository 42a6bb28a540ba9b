//! Several processes with one map.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;

use rustix::process::{Resource, Rlimit, setrlimit};

use super::*;
use mooring_test_support::processes::{TestProcess, heard, place, role, say};

/// What a process gets that writes more than it may; Linux has the same number on every machine that is supported.
const SIGXFSZ: i32 = 25;
/// How often a process is killed while it appends.
const KILLS: usize = 200;

/// Another process in this role, with the map at this place.
fn other(role: &str, place: &Path) -> TestProcess {
    TestProcess::in_role("tokens::tests::processes::the_other_process", role, place)
}

#[test]
#[ignore = "started by other tests, as a process of its own"]
fn the_other_process() {
    let place = place();
    let tokenizer = tokenizer(&place);
    match role().as_str() {
        "hides" => hides(&tokenizer),
        "appends" => appends(&tokenizer),
        "has no room" => has_no_room(&tokenizer, &place),
        other => panic!("no such role: {other}"),
    }
}

/// Hides every line that it is told.
fn hides(tokenizer: &Tokenizer) {
    say("ready");
    while let Some(text) = heard() {
        say(&tokenizer.hide_text(&text).unwrap());
    }
}

/// Hides new values without end, three at once, and says what became of them.
fn appends(tokenizer: &Tokenizer) {
    say("ready");
    let round = heard().unwrap();
    for number in 0_u32.. {
        let text = ["a", "b", "c"]
            .map(|name| format!("{name}{number}.{round}@example.com"))
            .join(" ");
        let hidden = tokenizer.hide_text(&text).unwrap();
        say(&format!("{text}|{hidden}"));
    }
}

/// Hides values where the file may grow by a few bytes only.
fn has_no_room(tokenizer: &Tokenizer, place: &Path) {
    // A handler takes the place of the signal's own effect, which is death.
    signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false))).unwrap();
    let length = std::fs::metadata(place.join("tokens")).unwrap().len();
    let most = Rlimit {
        current: Some(length + 100),
        maximum: Some(length + 100),
    };
    setrlimit(Resource::Fsize, most).unwrap();
    let error = tokenizer
        .hide_text("one@example.com two@example.com three@example.com")
        .unwrap_err();
    assert!(matches!(error, TokensError::Write(_)), "{error}");
    say(&format!("{:?}", tokenizer.hide_text("known@example.com")));
}

/// Two gateways see the same new values in the same moment.
#[test]
fn whoever_sees_a_value_first_it_has_one_token() {
    let place = tempfile::tempdir().unwrap();
    let values: Vec<String> = (0..40)
        .map(|number| format!("u{number}@example.com"))
        .collect();
    let mut others: Vec<TestProcess> = (0..3).map(|_| other("hides", place.path())).collect();
    for other in &mut others {
        assert_eq!(other.hear(), "ready");
    }
    let text = |rotation: usize| {
        let mut values = values.clone();
        values.rotate_left(rotation);
        values
    };
    let heard: Vec<BTreeMap<String, String>> = thread::scope(|scope| {
        let talks: Vec<_> = others
            .iter_mut()
            .enumerate()
            .map(|(index, other)| {
                let values = text(index * 13);
                scope.spawn(move || {
                    let mut tokens = BTreeMap::new();
                    for pair in values.chunks(2) {
                        other.tell(&pair.join(" "));
                        let hidden = other.hear();
                        let hidden = hidden.split(' ').map(str::to_owned);
                        tokens.extend(pair.iter().cloned().zip(hidden));
                    }
                    tokens
                })
            })
            .collect();
        talks.into_iter().map(|talk| talk.join().unwrap()).collect()
    });
    assert_eq!(heard[0], heard[1]);
    assert_eq!(heard[0], heard[2]);
    let tokens: BTreeSet<&String> = heard[0].values().collect();
    assert_eq!(
        tokens.len(),
        values.len(),
        "and no two values have the same"
    );
    let here = tokenizer(place.path());
    for (value, token) in &heard[0] {
        assert_eq!(reveal(&here, token), value.as_str());
    }
}

/// A process that waits for another's tokens has them as soon as they are there.
#[test]
fn what_another_process_kept_is_known_at_once() {
    let place = tempfile::tempdir().unwrap();
    let here = tokenizer(place.path());
    let mut other = self::other("hides", place.path());
    assert_eq!(other.hear(), "ready");
    for number in 0..20 {
        let value = format!("u{number}@example.com");
        other.tell(&value);
        let token = other.hear();
        assert_eq!(reveal(&here, &token), value.as_str());
        assert_eq!(here.hide_text(&value).unwrap(), token);
    }
}

/// Whatever moment a process is killed in: what it said stays true, and the next one goes on.
#[test]
fn a_process_killed_while_it_appends_takes_nothing_with_it() {
    let place = tempfile::tempdir().unwrap();
    let here = tokenizer(place.path());
    let mut said: Vec<(String, String)> = Vec::new();
    for round in 0..KILLS {
        let mut other = self::other("appends", place.path());
        assert_eq!(other.hear(), "ready");
        other.tell(&round.to_string());
        // Rounds differ in how far the process comes, and in where it is when the signal arrives.
        for _ in 0..=round % 7 {
            let line = other.hear();
            let (text, hidden) = line.split_once('|').unwrap();
            said.push((text.to_owned(), hidden.to_owned()));
        }
        other.kill();
        while let Some(line) = other.hear_if_any() {
            if let Some((text, hidden)) = line.split_once('|')
                && hidden.split(' ').count() == 3
                && hidden.len() == "TKN_EMAIL_000001".len() * 3 + 2
            {
                said.push((text.to_owned(), hidden.to_owned()));
            }
        }
        let (text, hidden) = said.last().unwrap();
        assert_eq!(&here.hide_text(text).unwrap(), hidden, "round {round}");
        here.hide_text(&format!("own{round}@example.com")).unwrap();
    }
    let fresh = tokenizer(place.path());
    for (text, hidden) in &said {
        assert_eq!(reveal(&fresh, hidden), text.as_str());
        assert_eq!(&here.hide_text(text).unwrap(), hidden);
    }
}

#[test]
fn a_full_disk_lets_nothing_out_and_is_survived() {
    let place = tempfile::tempdir().unwrap();
    let here = tokenizer(place.path());
    here.hide_text("known@example.com").unwrap();
    let mut other = self::other("has no room", place.path());
    assert_eq!(
        other.hear(),
        "Ok(\"TKN_EMAIL_000001\")",
        "what is known needs no room"
    );
    drop(other);
    let text = "one@example.com two@example.com three@example.com four@example.com";
    let hidden = here.hide_text(text).unwrap();
    assert_eq!(reveal(&tokenizer(place.path()), &hidden), text);
    assert_eq!(here.hide_text(text).unwrap(), hidden);
}
