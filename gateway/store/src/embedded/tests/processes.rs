//! Several processes over one file.

use std::path::Path;
use std::time::Duration;

use super::{Clock, EmbeddedStore, File, Get, make};
use mooring_test_support::processes::{TestProcess, heard, place, role, say};

/// How often a process is killed while it writes.
const KILLS: usize = 200;

/// Another process in this role, over this file.
fn other(role: &str, path: &Path) -> TestProcess {
    TestProcess::in_role("embedded::tests::processes::the_other_process", role, path)
}

fn open(path: &Path) -> EmbeddedStore {
    EmbeddedStore::open(path, Clock::system(), make::PREFIX).unwrap()
}

#[tokio::test]
#[ignore = "started by another test, as a process of its own"]
async fn the_other_process() {
    let (role, path) = (role(), place());
    match role.split_once(' ') {
        None if role == "caller" => serve_one_call(&path).await,
        Some(("writer", round)) => write_until_killed(&path, round).await,
        _ => panic!("no role {role}"),
    }
}

/// A session of its own, and one that all share; says whether it was the first there.
async fn serve_one_call(path: &Path) {
    say("ready");
    let own = heard().unwrap();
    let store = open(path);
    let (key, shared) = (make::key(&own), make::key("shared"));
    store.run(&key, &make::create(&own)).await.unwrap();
    store.run(&key, &make::bind("t", "i", &own)).await.unwrap();
    store.run(&shared, &make::create("shared")).await.unwrap();
    let bound = store
        .run(&shared, &make::bind(&own, "i", &own))
        .await
        .unwrap();
    let read = store.run(&key, &Get).await.unwrap();
    assert_eq!(
        read.bindings[0].upstream_session,
        Some(make::upstream(&own))
    );
    say(&format!("won {}", bound.won));
}

/// New sessions, and one whose upstream session is replaced again and again; says what is acknowledged.
async fn write_until_killed(path: &Path, round: &str) {
    let store = open(path);
    let held = make::key("held");
    let created = store.run(&held, &make::create("held")).await.unwrap();
    let mut epoch = match created.record.bindings.first() {
        Some(binding) => binding.epoch,
        None => {
            let bound = store.run(&held, &make::bind("first", "i", "u-0-0")).await;
            bound.unwrap().binding.epoch
        }
    };
    for n in 0_usize.. {
        let own = format!("s-{round}-{n}");
        store
            .run(&make::key(&own), &make::create(&own))
            .await
            .unwrap();
        say(&own);
        let upstream = format!("u-{round}-{n}");
        let mut rebind = make::rebind(epoch, &upstream, "i");
        rebind.upstream_session = Some(make::upstream(&upstream));
        let rebound = store.run(&held, &rebind).await.unwrap();
        assert!(rebound.won);
        epoch = rebound.binding.epoch;
        say(&upstream);
    }
}

/// All begin at once, over a file that is not there, or is there and damaged.
async fn callers_at_once(file: &File, count: usize) {
    let mut callers: Vec<_> = (0..count).map(|_| other("caller", &file.path)).collect();
    for caller in &mut callers {
        assert_eq!(caller.hear(), "ready");
    }
    for (n, caller) in callers.iter_mut().enumerate() {
        caller.tell(&format!("own-{n}"));
    }
    let answers: Vec<_> = callers.iter_mut().map(TestProcess::hear_if_any).collect();
    let all_done = answers.iter().all(|answer| {
        answer
            .as_deref()
            .is_some_and(|said| said.starts_with("won "))
    });
    assert!(all_done, "{answers:?}");
    let won = answers.iter().flatten().filter(|said| *said == "won true");
    assert_eq!(won.count(), 1, "{answers:?}");
    let store = open(&file.path);
    for n in 0..count {
        let own = format!("own-{n}");
        let record = store.run(&make::key(&own), &Get).await.unwrap();
        assert_eq!(
            record.bindings[0].upstream_session,
            Some(make::upstream(&own))
        );
    }
    let sound: String = file
        .connection()
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(sound, "ok");
}

#[tokio::test]
async fn a_hundred_processes_that_begin_at_once_lose_nothing() {
    let file = File::new();
    callers_at_once(&file, 100).await;
    assert!(file.names().iter().all(|name| !name.contains("corrupt")));
}

#[tokio::test]
async fn of_many_that_find_the_file_damaged_one_moves_it_aside() {
    let file = File::new();
    std::fs::create_dir(file.path.parent().unwrap()).unwrap();
    std::fs::write(&file.path, b"no database".repeat(1_000)).unwrap();
    callers_at_once(&file, 20).await;
    let aside = file
        .names()
        .into_iter()
        .filter(|name| name.contains(".corrupt-"));
    assert_eq!(aside.count(), 1, "{:?}", file.names());
}

#[tokio::test]
async fn what_was_acknowledged_survives_two_hundred_kills() {
    let file = File::new();
    let (mut acknowledged, mut last_upstream) = (Vec::new(), (0, 0));
    for round in 1..=KILLS {
        let said = write_and_be_killed(&file.path, round);
        let store = open(&file.path);
        for word in said {
            if word.starts_with("s-") {
                store.run(&make::key(&word), &Get).await.unwrap();
                acknowledged.push(word);
            } else {
                last_upstream = number_of(&word);
            }
        }
        if last_upstream != (0, 0) {
            let record = store.run(&make::key("held"), &Get).await.unwrap();
            let held = record.bindings[0].upstream_session.as_ref().unwrap();
            assert!(
                number_of(held.as_str()) >= last_upstream,
                "{held:?} {last_upstream:?}"
            );
        }
    }
    let store = open(&file.path);
    for session in &acknowledged {
        store.run(&make::key(session), &Get).await.unwrap();
    }
    assert!(acknowledged.len() > KILLS, "{}", acknowledged.len());
    assert!(file.names().iter().all(|name| !name.contains("corrupt")));
}

/// Kills a writer after some lines, and some moments more; answers with everything that it said.
fn write_and_be_killed(path: &Path, round: usize) -> Vec<String> {
    let mut writer = other(&format!("writer {round}"), path);
    let lines = rand::random_range(0..30);
    let mut said: Vec<String> = (0..lines).map_while(|_| writer.hear_if_any()).collect();
    let moment = Duration::from_micros(rand::random_range(0..3_000));
    std::thread::sleep(moment);
    writer.kill();
    said.extend(std::iter::from_fn(|| writer.hear_if_any()));
    said
}

/// The round and the number in `u-<round>-<number>`.
fn number_of(text: &str) -> (usize, usize) {
    let mut parts = text.split('-').skip(1).map(|part| part.parse().unwrap());
    (parts.next().unwrap(), parts.next().unwrap())
}
