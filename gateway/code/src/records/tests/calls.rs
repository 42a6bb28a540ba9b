//! The calls of a run, as they happen.

use super::super::calls_read::RecordedOutcome;
use super::*;

async fn finish(recording: Recording) {
    tokio::task::spawn_blocking(move || recording.finish(finished("")))
        .await
        .unwrap();
}

#[tokio::test]
async fn calls_are_recorded_with_arguments_and_results() {
    let fixture = Fixture::new();
    let recording = fixture.begin("ada");
    let id = recording.run_id().to_owned();
    let tools = recording.callee(Echo);
    assert_eq!(
        tools.call(call("echo", json!({"a": [1, 2]}))).await,
        Ok(json!({"a": [1, 2]}))
    );
    assert_eq!(tools.call(call("null", json!({}))).await, Ok(Value::Null));
    let failed = tools.call(call("fail", json!({}))).await.unwrap_err();
    assert_eq!(failed.kind, CallErrorKind::ToolError);
    let denied = tools.call(call("denied", json!({}))).await.unwrap_err();
    assert_eq!(denied.kind, CallErrorKind::Denied);

    let made = recording.calls_made();
    assert_eq!((made.total, made.failed, made.is_complete), (4, 2, true));
    assert_eq!(made.error_rate(), 0.5);
    assert_eq!(made.calls[0].name, "github/echo");
    assert!(made.calls[0].success);
    assert_eq!(made.calls[2].error.as_deref(), Some("it failed"));
    assert!(made.latency_ms(99).is_some());
    finish(recording).await;

    let whole = fixture.whole(&id);
    assert!(whole.calls.is_complete);
    let outcomes: Vec<_> = whole
        .calls
        .calls
        .iter()
        .map(|call| call.outcome.clone())
        .collect();
    assert_eq!(outcomes[0], RecordedOutcome::Result(json!({"a": [1, 2]})));
    assert_eq!(outcomes[1], RecordedOutcome::Result(Value::Null));
    assert_eq!(outcomes[2], RecordedOutcome::Error(failed));
    assert_eq!(
        whole.calls.calls[0].arguments,
        Some(call("", json!({"a": [1, 2]})).arguments)
    );
    let ended = whole.record.ended.unwrap();
    assert_eq!(ended.tool_calls_total, 4);
    let kinds: Vec<_> = ended
        .security_events
        .iter()
        .map(|event| event.kind)
        .collect();
    assert_eq!(
        kinds,
        [EventKind::ToolCallError, EventKind::ToolCallBlocked]
    );
    assert_eq!(
        ended.security_events[1].tool.as_deref(),
        Some("github/denied")
    );
    assert_eq!(ended.security_events[1].call, Some(4));
}

#[tokio::test]
async fn a_call_is_on_the_volume_before_it_is_made() {
    /// A tool that looks into the record of its own call.
    struct Looks(Records, ServerName, RunId);
    impl Callee for Looks {
        async fn call(&self, _: NestedCall) -> Result<Value, CallError> {
            let whole = self.0.whole_run(&self.1, &self.2).unwrap();
            assert_eq!(whole.calls.calls.len(), 1);
            assert_eq!(whole.calls.calls[0].outcome, RecordedOutcome::Unended);
            Ok(json!("looked"))
        }
    }
    let fixture = Fixture::new();
    let recording = fixture.begin("ada");
    let id = RunId::parse(recording.run_id()).unwrap();
    let looks = Looks(fixture.records.clone(), fixture.server.clone(), id);
    let result = recording.callee(looks).call(call("look", json!({}))).await;
    assert_eq!(result, Ok(json!("looked")));
}

#[tokio::test]
async fn a_call_that_the_run_did_not_wait_for_has_no_end() {
    let fixture = Fixture::new();
    let recording = fixture.begin("ada");
    let id = recording.run_id().to_owned();
    let tools = Arc::new(recording.callee(Echo));
    let hanging = {
        let tools = Arc::clone(&tools);
        tokio::spawn(async move { tools.call(call("hang", json!({}))).await })
    };
    while recording.calls_made().total == 0 {
        tokio::task::yield_now().await;
    }
    hanging.abort();
    assert!(hanging.await.is_err());
    finish(recording).await;
    // Too late.
    tools.call(call("echo", json!({}))).await.unwrap();
    let whole = fixture.whole(&id);
    assert_eq!(whole.calls.calls.len(), 1);
    assert_eq!(whole.calls.calls[0].outcome, RecordedOutcome::Unended);
    let listed = whole.record.ended.unwrap().tool_calls_made;
    assert!(!listed[0].success);
    assert!(
        listed[0]
            .error
            .as_deref()
            .unwrap()
            .contains("before the call did")
    );
}

#[tokio::test]
async fn a_log_that_is_full_goes_on_without_bodies_and_says_so() {
    let fixture = Fixture::new();
    let recording = fixture.begin("ada");
    let id = recording.run_id().to_owned();
    let tools = recording.callee(Echo);
    let large = json!({"text": "x".repeat(6 * 1024 * 1024)});
    for _ in 0..2 {
        tools.call(call("echo", large.clone())).await.unwrap();
    }
    tools.call(call("echo", json!({"small": 1}))).await.unwrap();
    assert!(!recording.calls_made().is_complete);
    finish(recording).await;
    let whole = fixture.whole(&id);
    assert!(!whole.calls.is_complete);
    assert!(!whole.record.ended.unwrap().are_calls_complete);
    let calls = whole.calls.calls;
    assert_eq!(calls.len(), 3);
    assert!(matches!(calls[0].outcome, RecordedOutcome::Result(_)));
    assert_eq!(calls[1].outcome, RecordedOutcome::Omitted);
    assert_eq!(
        calls[1].key, calls[0].key,
        "it is still found by its arguments"
    );
    assert_eq!(
        calls[2].outcome,
        RecordedOutcome::Result(json!({"small": 1}))
    );
}

#[tokio::test]
async fn below_the_free_space_floor_no_bodies_are_written_and_the_record_says_so() {
    let fixture = Fixture::new();
    let records = records_with(&fixture.base, "w:1", |settings| {
        settings.records_free_bytes_min = u64::MAX
    });
    let recording = records.begin(&fixture.server, new_run("ada"));
    let id = recording.run_id().to_owned();
    let tools = recording.callee(Echo);
    let large = json!({"text": "secret ".repeat(1_000)});
    tools.call(call("echo", large)).await.unwrap();
    tokio::task::spawn_blocking(move || recording.finish(finished("printed")))
        .await
        .unwrap();
    let whole = fixture.whole(&id);
    let ended = whole.record.ended.clone().unwrap();
    assert!(ended.are_bodies_omitted && !ended.are_calls_complete);
    assert_eq!(whole.to_json()["bodies_omitted"], true);
    assert_eq!((whole.code, whole.texts.output.as_str()), (None, ""));
    assert_eq!(whole.calls.calls.len(), 1, "that it was made is recorded");
    assert_eq!(whole.calls.calls[0].outcome, RecordedOutcome::Omitted);
    let bytes: u64 = fixture
        .files()
        .iter()
        .map(|name| {
            let path = fixture.base.join(".runs/sandbox").join(name);
            std::fs::metadata(path).unwrap().len()
        })
        .sum();
    assert!(bytes < 2_500, "{bytes} bytes, {:?}", fixture.files());
}
