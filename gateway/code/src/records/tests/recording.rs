//! A run from its beginning to its end.

use super::*;

#[test]
fn a_run_is_running_until_it_has_ended_and_then_has_all_that_is_known() {
    let fixture = Fixture::new();
    let recording = fixture.begin("ada");
    let id = recording.run_id().to_owned();
    let running = fixture.whole(&id);
    assert_eq!(running.record.status(), RunStatus::Running);
    assert_eq!(running.code.as_deref(), Some("print('hello')"));
    assert!(running.to_json()["finished_at"].is_null());
    assert_eq!(
        fixture
            .files()
            .iter()
            .filter(|name| name.starts_with("running/"))
            .count(),
        1
    );

    let told = recording.finish(finished("hello\n"));
    assert_eq!(told.status(), RunStatus::Completed);
    let whole = fixture.whole(&id);
    assert_eq!(whole.record, told);
    let json = whole.to_json();
    for (field, expected) in [
        ("id", json!(id)),
        ("server_id", json!("sandbox")),
        ("session_id", json!("0123456789abcdef01234567")),
        ("user_email", json!("ada")),
        ("token_teams", json!(["red"])),
        ("language", json!("python")),
        ("runtime", json!("python")),
        ("code_body", json!("print('hello')")),
        ("code_size_bytes", json!(14)),
        ("status", json!("completed")),
        ("output", json!("hello\n")),
        ("error", Value::Null),
        ("worker", json!("w:1")),
        ("timeout_ms", json!(1_000)),
        ("tool_calls_made", json!([])),
        ("security_events", json!([])),
        ("replayed_from_run_id", Value::Null),
        ("tool_calls_complete", json!(true)),
    ] {
        assert_eq!(json[field], expected, "{field}");
    }
    assert_eq!(json["metrics"]["cpu_time_ms"], 3.5);
    assert!(json["finished_at"].is_string());
    assert!(
        !fixture
            .files()
            .iter()
            .any(|name| name.starts_with("running/"))
    );
}

#[test]
fn what_is_printed_is_cut_and_says_so() {
    let fixture = Fixture::new();
    let recording = fixture.begin("ada");
    let id = recording.run_id().to_owned();
    let long = "ä".repeat(OUTPUT_CHARS_MAX + 1);
    recording.finish(RunCompletion {
        error: Some(long.clone()),
        ..finished(&long)
    });
    let texts = fixture.whole(&id).texts;
    let kept = "ä".repeat(OUTPUT_CHARS_MAX);
    let cut = format!("{kept}\n[truncated: the first 1000 of 1001 characters]");
    assert_eq!(texts.output, cut);
    assert_eq!(texts.error, Some(cut));
}

#[test]
fn a_run_that_nobody_finished_has_failed() {
    let fixture = Fixture::new();
    let recording = fixture.begin("ada");
    let id = recording.run_id().to_owned();
    drop(recording);
    let whole = fixture.whole(&id);
    assert_eq!(whole.record.status(), RunStatus::Failed);
    assert!(whole.texts.error.unwrap().contains("dropped the run"));
}

#[test]
fn a_run_ends_once() {
    let fixture = Fixture::new();
    let recording = fixture.begin("ada");
    let id = RunId::parse(recording.run_id()).unwrap();
    let other = fixture.as_gateway("w:2");
    let marks = other.running(&fixture.server).unwrap();
    let mut orphans = lost_orphans();
    let ended = other.end_lost(&fixture.server, &marks, &[], &mut orphans, Duration::ZERO);
    assert_eq!(ended.unwrap(), 1);
    // Its gateway was only slow.
    recording.finish(finished("late"));
    let whole = fixture.whole(id.as_str());
    assert_eq!(whole.record.status(), RunStatus::Lost);
    assert_eq!(whole.texts.output, "");
}

#[test]
fn a_blocked_run_is_recorded_with_its_event() {
    let fixture = Fixture::new();
    let run = new_run("ada");
    let id = run.id.clone();
    let blocked = RunCompletion {
        outcome: RunOutcome::Blocked,
        ..finished("")
    };
    let event = SecurityEvent::new(EventKind::PolicyBlock, "blocked by the pattern eval");
    fixture
        .records
        .blocked(&fixture.server, run, blocked, Some(event));
    let record = fixture.records.run(&fixture.server, &id).unwrap();
    assert_eq!(record.status(), RunStatus::Blocked);
    assert_eq!(
        record.ended.unwrap().security_events[0].kind,
        EventKind::PolicyBlock
    );
    let events = fixture
        .records
        .events(&fixture.server, &events::any())
        .unwrap();
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].run_id.as_deref(), Some(id.as_str()));
}

#[test]
fn a_record_that_cannot_be_written_costs_the_record_and_not_the_run() {
    let fixture = Fixture::new();
    // A file where the directory of the server would be.
    std::fs::write(fixture.base.join(".runs/sandbox"), "in the way").unwrap();
    let recording = fixture.begin("ada");
    recording.event(SecurityEvent::new(EventKind::LimitHit, "it met a limit"));
    let record = recording.finish(finished("hello"));
    assert_eq!(record.status(), RunStatus::Completed);
    assert!(fixture.records.runs(&fixture.server, &all()).is_err());
}

#[test]
fn a_record_of_a_later_version_is_not_half_read() {
    let fixture = Fixture::new();
    let recording = fixture.begin("ada");
    let id = RunId::parse(recording.run_id()).unwrap();
    recording.finish(finished(""));
    let path = fixture
        .base
        .join(".runs/sandbox")
        .join(id.day())
        .join(format!("{id}.run"));
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("\"version\":1", "\"version\":2")).unwrap();
    assert!(matches!(
        fixture.records.run(&fixture.server, &id),
        Err(RecordsError::Unreadable)
    ));
    assert_eq!(fixture.list(&all()), []);
    let other = RunId::new();
    assert!(matches!(
        fixture.records.run(&fixture.server, &other),
        Err(RecordsError::NoRun)
    ));
}

fn lost_orphans() -> crate::records::lost::OrphanedRuns {
    crate::records::lost::OrphanedRuns::default()
}
