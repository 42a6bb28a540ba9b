//! Runs whose gateway died.

use super::super::call_lines::BYTES_MAX;
use super::super::lost::OrphanedRuns;
use super::*;

fn workers(names: &[&str]) -> Vec<WorkerId> {
    names
        .iter()
        .map(|name| WorkerId::parse(name.as_bytes()).unwrap())
        .collect()
}

#[test]
fn a_run_is_given_up_when_its_gateway_was_missed_long_enough_and_only_once() {
    let fixture = Fixture::new();
    let (dead, sweeper, other) = (
        fixture.as_gateway("dead:1"),
        fixture.as_gateway("a:1"),
        fixture.as_gateway("b:1"),
    );
    let recording = dead.begin(&fixture.server, new_run("ada"));
    let id = recording.run_id().to_owned();
    // As if the process were killed: nothing is written any more.
    std::mem::forget(recording);
    let server = &fixture.server;
    let live = workers(&["a:1", "b:1", "dead:2"]);
    let marks = sweeper.running(server).unwrap();
    assert_eq!(marks.len(), 1);
    let mut orphans = OrphanedRuns::default();
    let long = Duration::from_secs(3_600);
    // One look is not enough.
    assert_eq!(
        sweeper
            .end_lost(server, &marks, &live, &mut orphans, long)
            .unwrap(),
        0
    );
    assert_eq!(fixture.whole(&id).record.status(), RunStatus::Running);
    let end = |records: &Records, orphans: &mut OrphanedRuns| {
        records
            .end_lost(server, &marks, &live, orphans, Duration::ZERO)
            .unwrap()
    };
    assert_eq!(end(&sweeper, &mut orphans), 1);
    assert_eq!(end(&other, &mut OrphanedRuns::default()), 0, "it has ended");
    let whole = fixture.whole(&id);
    assert_eq!(whole.record.status(), RunStatus::Lost);
    assert!(whole.texts.error.unwrap().contains("the gateway ended"));
    assert!(sweeper.running(server).unwrap().is_empty());
}

#[test]
fn the_runs_of_a_worker_that_lives_are_left_alone() {
    let fixture = Fixture::new();
    let other = fixture.as_gateway("b:1");
    let recording = fixture.begin("ada");
    let id = recording.run_id().to_owned();
    let marks = other.running(&fixture.server).unwrap();
    let mut orphans = OrphanedRuns::default();
    let live = workers(&["w:1"]);
    let ended = other.end_lost(&fixture.server, &marks, &live, &mut orphans, Duration::ZERO);
    assert_eq!(ended.unwrap(), 0);
    // Nor does a gateway give itself up, whatever the store says.
    let ended =
        fixture
            .records
            .end_lost(&fixture.server, &marks, &[], &mut orphans, Duration::ZERO);
    assert_eq!(ended.unwrap(), 0);
    assert_eq!(fixture.whole(&id).record.status(), RunStatus::Running);
    recording.finish(finished(""));
}

#[test]
fn a_worker_that_is_missed_and_heard_again_counts_from_the_beginning() {
    let fixture = Fixture::new();
    let other = fixture.as_gateway("b:1");
    let _recording = fixture.begin("ada");
    let marks = other.running(&fixture.server).unwrap();
    let mut orphans = OrphanedRuns::default();
    let look = |orphans: &mut OrphanedRuns, live: &[&str], after| {
        let live = workers(live);
        other
            .end_lost(&fixture.server, &marks, &live, orphans, after)
            .unwrap()
    };
    let long = Duration::from_secs(3_600);
    assert_eq!(look(&mut orphans, &[], long), 0);
    assert!(!orphans.is_empty(), "it is missed");
    assert_eq!(look(&mut orphans, &["w:1"], Duration::ZERO), 0);
    assert!(orphans.is_empty(), "it was heard");
    assert_eq!(look(&mut orphans, &[], long), 0);
}

#[test]
fn a_record_that_cannot_be_ended_holds_up_no_other() {
    let fixture = Fixture::new();
    let dead = fixture.as_gateway("dead:1");
    let ids = ["ada", "bob"].map(|user| {
        let recording = dead.begin(&fixture.server, new_run(user));
        let id = RunId::parse(recording.run_id()).unwrap();
        std::mem::forget(recording);
        id
    });
    let calls = format!(".runs/sandbox/{}/{}.calls", ids[0].day(), ids[0]);
    let calls = std::fs::File::create(fixture.base.join(calls)).unwrap();
    calls.set_len(BYTES_MAX + 1).unwrap();
    let marks = fixture.records.running(&fixture.server).unwrap();
    assert_eq!(marks.len(), 2);
    let mut orphans = OrphanedRuns::default();
    let ended =
        fixture
            .records
            .end_lost(&fixture.server, &marks, &[], &mut orphans, Duration::ZERO);
    assert_eq!(ended.unwrap(), 1);
    assert_eq!(
        fixture.whole(ids[1].as_str()).record.status(),
        RunStatus::Lost
    );
}
