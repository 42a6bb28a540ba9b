//! Workers that are killed: their records still tell what they did.

use super::super::calls_read::RecordedOutcome;
use super::super::lost::OrphanedRuns;
use super::*;
use mooring_test_support::processes::{TestProcess, heard, place, say};

/// How often a recording gateway is killed at a moment of chance.
const KILLS: usize = 12;

#[test]
#[ignore = "started by other tests, as a process of its own"]
fn the_worker_in_a_call() {
    let records = records_at(&place(), "killed:1");
    let recording = records.begin(&server(), new_run("ada"));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(async {
        let tools = recording.callee(Says);
        tools
            .call(call("echo", json!({"first": true})))
            .await
            .unwrap();
        let _never = tools.call(call("hang", json!({"second": true}))).await;
    });
}

/// Tools of which one says that it was called, and then does not answer.
struct Says;

impl Callee for Says {
    async fn call(&self, call: NestedCall) -> Result<Value, CallError> {
        if &*call.tool == "hang" {
            say("called");
            // Until it is killed.
            heard();
        }
        Ok(json!("done"))
    }
}

#[test]
#[ignore = "started by other tests, as a process of its own"]
fn the_worker_that_records() {
    let records = records_at(&place(), "killed:1");
    say("ready");
    loop {
        let recording = records.begin(&server(), new_run("ada"));
        recording.event(SecurityEvent::new(EventKind::LimitHit, "it met a limit"));
        recording.finish(finished("hello"));
        say("finished");
    }
}

#[test]
fn the_record_of_a_killed_worker_tells_what_was_called() {
    let fixture = Fixture::new();
    let mut other = TestProcess::start(
        "records::tests::killed::the_worker_in_a_call",
        &fixture.base,
    );
    assert_eq!(other.hear(), "called");
    other.kill();
    let listed = fixture.list(&all());
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].status(), RunStatus::Running);
    let marks = fixture.records.running(&fixture.server).unwrap();
    let mut orphans = OrphanedRuns::default();
    let ended =
        fixture
            .records
            .end_lost(&fixture.server, &marks, &[], &mut orphans, Duration::ZERO);
    assert_eq!(ended.unwrap(), 1);
    let whole = fixture.whole(&listed[0].begun.id);
    assert_eq!(whole.record.status(), RunStatus::Lost);
    let outcomes: Vec<_> = whole.calls.calls.iter().map(|call| &call.outcome).collect();
    assert_eq!(
        outcomes,
        [
            &RecordedOutcome::Result(json!("done")),
            &RecordedOutcome::Unended
        ]
    );
    assert_eq!(whole.record.ended.unwrap().tool_calls_made.len(), 2);
}

#[test]
fn wherever_a_recording_worker_is_killed_no_record_is_half_there() {
    let fixture = Fixture::new();
    for round in 0..KILLS {
        let mut other = TestProcess::start(
            "records::tests::killed::the_worker_that_records",
            &fixture.base,
        );
        assert_eq!(other.hear(), "ready");
        for _ in 0..round {
            assert_eq!(other.hear(), "finished");
        }
        other.kill();
        let marks = fixture.records.running(&fixture.server).unwrap();
        assert!(marks.len() <= 1, "{marks:?}");
        let mut orphans = OrphanedRuns::default();
        fixture
            .records
            .end_lost(&fixture.server, &marks, &[], &mut orphans, Duration::ZERO)
            .unwrap();
        assert!(fixture.records.running(&fixture.server).unwrap().is_empty());
    }
    let every = RunFilter {
        limit: 100_000,
        ..RunFilter::default()
    };
    let runs = fixture.list(&every);
    let names = fixture.files();
    let begun = names.iter().filter(|name| name.ends_with(".run")).count();
    assert_eq!(runs.len(), begun, "every record is read");
    for run in &runs {
        let whole = fixture.whole(&run.begun.id);
        assert_eq!(whole.code.as_deref(), Some("print('hello')"));
        match run.status() {
            RunStatus::Completed => assert_eq!(whole.texts.output, "hello"),
            RunStatus::Lost => {}
            other => panic!("{other:?}"),
        }
    }
}
