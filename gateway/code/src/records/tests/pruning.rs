//! Retention, by age and by number.

use super::*;

const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

fn record(fixture: &Fixture, at_ms: u64) -> RunId {
    let id = RunId::at(at_ms);
    let recording = fixture
        .records
        .begin(&fixture.server, new_run_with("ada", id.clone()));
    recording.finish(finished("hello"));
    id
}

#[test]
fn the_oldest_go_where_there_are_too_many() {
    let fixture = Fixture::new();
    let now_ms = mooring_store::unix_now_ms();
    let ids: Vec<RunId> = (0..8)
        .map(|number| record(&fixture, now_ms + number))
        .collect();
    let running = fixture
        .records
        .begin(&fixture.server, new_run_with("ada", RunId::at(now_ms - 1)));
    let pruned = fixture.records.prune(&fixture.server, now_ms + 10).unwrap();
    assert_eq!((pruned.runs, pruned.is_more), (3, false));
    let left: Vec<String> = fixture
        .list(&all())
        .into_iter()
        .map(|run| run.begun.id)
        .collect();
    let mut expected: Vec<String> = ids[3..].iter().rev().map(ToString::to_string).collect();
    expected.push(running.run_id().to_owned());
    assert_eq!(left, expected, "what goes on stays");
    let gone = ids[0].to_string();
    assert!(!fixture.files().iter().any(|name| name.contains(&gone)));
    running.finish(finished(""));
}

/// Records of three users, 100 kB each, with quotas of so many kilobytes: whose are left after a pass, newest first.
fn left_after(user_kb: u64, server_kb: u64) -> Vec<String> {
    let fixture = Fixture::new();
    let records = records_with(&fixture.base, "w:1", |settings| {
        settings.persisted_output_chars_max = 200_000;
        settings.runs_kept_max = 100;
        settings.user_runs_kept_bytes = user_kb * 1_000;
        settings.runs_kept_bytes = server_kb * 1_000;
    });
    let now_ms = mooring_store::unix_now_ms();
    let begin =
        |user: &str, at_ms| records.begin(&fixture.server, new_run_with(user, RunId::at(at_ms)));
    let running = begin("eve", now_ms - 1);
    for (number, user) in ["eve", "eve", "eve", "bob", "eve", "ada"]
        .into_iter()
        .enumerate()
    {
        let at_ms = now_ms + u64::try_from(number).unwrap();
        begin(user, at_ms).finish(finished(&"x".repeat(100_000)));
    }
    records.prune(&fixture.server, now_ms + 10).unwrap();
    let left = fixture
        .list(&all())
        .into_iter()
        .map(|run| run.begun.user_email)
        .collect();
    // What is remembered of the pass leads to the same.
    let again = records.prune(&fixture.server, now_ms + 11).unwrap();
    assert_eq!((again.runs, again.is_more), (0, false));
    running.finish(finished(""));
    left
}

#[test]
fn the_oldest_finished_records_go_where_a_user_or_a_server_has_too_many_bytes() {
    let everything = ["ada", "eve", "bob", "eve", "eve", "eve", "eve"];
    assert_eq!(left_after(10_000, 10_000), everything);
    // Two of the four of one user, and nobody else's; what goes on stays.
    assert_eq!(left_after(150, 10_000), ["ada", "eve", "bob", "eve", "eve"]);
    assert_eq!(left_after(10_000, 250), ["ada", "eve", "bob", "eve"]);
    assert_eq!(
        left_after(1, 1),
        ["ada", "eve"],
        "the newest stays whatever it takes"
    );
}

#[test]
fn a_process_that_has_recorded_much_prunes_early() {
    let fixture = Fixture::new();
    let records = records_with(&fixture.base, "w:1", |settings| {
        settings.persisted_output_chars_max = 200_000;
        settings.user_runs_kept_bytes = 400_000;
    });
    let now_ms = mooring_store::unix_now_ms();
    records.prune(&fixture.server, now_ms).unwrap();
    assert!(!records.is_prune_due(&fixture.server, now_ms + 1).unwrap());
    let recording = records.begin(&fixture.server, new_run("ada"));
    recording.finish(finished(&"x".repeat(100_000)));
    assert!(records.is_prune_due(&fixture.server, now_ms + 1).unwrap());
    records.prune(&fixture.server, now_ms + 1).unwrap();
    assert!(!records.is_prune_due(&fixture.server, now_ms + 2).unwrap());
}

#[test]
fn what_is_too_old_goes_with_its_events_and_its_day() {
    let fixture = Fixture::new();
    let now_ms = mooring_store::unix_now_ms();
    let (old, young) = (
        record(&fixture, now_ms - 11 * DAY_MS),
        record(&fixture, now_ms),
    );
    fixture.records.event(
        &fixture.server,
        &principal("ada"),
        &SecurityEvent::new(EventKind::RateLimited, "too many"),
    );
    let prune = |at_ms| fixture.records.prune(&fixture.server, at_ms).unwrap();
    let pruned = prune(now_ms);
    assert_eq!((pruned.runs, pruned.events), (1, 0));
    prune(now_ms);
    assert!(!fixture.base.join(".runs/sandbox").join(old.day()).exists());
    assert!(fixture.records.run(&fixture.server, &young).is_ok());
    let pruned = prune(now_ms + 11 * DAY_MS);
    assert_eq!((pruned.runs, pruned.events), (1, 1));
    prune(now_ms + 11 * DAY_MS);
    assert_eq!(fixture.files(), ["prune.lock"]);
}

#[test]
fn what_a_killed_worker_left_of_a_record_goes_when_it_is_old() {
    let fixture = Fixture::new();
    let now_ms = mooring_store::unix_now_ms();
    let id = record(&fixture, now_ms);
    let day = fixture.base.join(".runs/sandbox").join(id.day());
    std::fs::remove_file(day.join(format!("{id}.run"))).unwrap();
    std::fs::write(day.join(".new-0123456789abcdef"), "half").unwrap();
    fixture
        .records
        .prune(&fixture.server, now_ms + 1_000)
        .unwrap();
    assert!(
        day.join(format!("{id}.code")).exists(),
        "it may be about to begin"
    );
    fixture
        .records
        .prune(&fixture.server, now_ms + DAY_MS)
        .unwrap();
    assert!(!day.exists() || std::fs::read_dir(day).unwrap().next().is_none());
}

#[test]
fn one_worker_prunes_for_all() {
    let fixture = Fixture::new();
    let now_ms = mooring_store::unix_now_ms();
    let is_due = |at_ms| {
        fixture
            .as_gateway("b:1")
            .is_prune_due(&fixture.server, at_ms)
            .unwrap()
    };
    assert!(is_due(now_ms), "nobody ever has");
    fixture.records.prune(&fixture.server, now_ms).unwrap();
    assert!(!is_due(now_ms + 29_000));
    assert!(is_due(now_ms + 30_000));
}

#[test]
fn one_worker_prunes_at_a_time() {
    let fixture = Fixture::new();
    let now_ms = mooring_store::unix_now_ms();
    record(&fixture, now_ms - 11 * DAY_MS);
    let area = fixture.records.area(&fixture.server).unwrap();
    let lock = area.lock("prune.lock", Duration::ZERO).unwrap();
    assert_eq!(
        fixture
            .as_gateway("b:1")
            .prune(&fixture.server, now_ms)
            .unwrap()
            .runs,
        0
    );
    drop(lock);
    assert_eq!(
        fixture
            .as_gateway("b:1")
            .prune(&fixture.server, now_ms)
            .unwrap()
            .runs,
        1
    );
}
