//! What a program of good will meets.

use super::*;

#[tokio::test]
async fn a_call_is_answered_and_counted() {
    let (mut program, bridge, _) = bridge();
    let answer = program.ask(&call(1, "echo", json!({"a": [1, "ü"]}))).await;
    assert_eq!(answer, json!({"id": 1, "result": {"a": [1, "ü"]}}));
    let names = program
        .ask(&json!({"id": 0, "server": "s/../\u{0}", "tool": "name"}))
        .await;
    assert_eq!(names, json!({"id": 0, "result": ["s/../\u{0}", "name"]}));
    let served = bridge.end().await;
    assert_eq!((served.calls, served.refused), (2, 0));
    assert_eq!(served.violations, []);
}

#[tokio::test]
async fn an_error_carries_its_kind_and_message() {
    let (mut program, bridge, _) = bridge();
    let answer = program
        .ask(&call(7, "fail", json!({"message": "no such issue"})))
        .await;
    let error = json!({"kind": "tool_error", "message": "no such issue"});
    assert_eq!(answer, json!({"id": 7, "error": error}));
    let answer = program.ask(&call(8, "none", json!({}))).await;
    assert_eq!(answer["error"]["kind"], "not_mounted");
    bridge.end().await;
}

#[tokio::test]
async fn a_message_without_end_is_cut_between_characters() {
    let (mut program, bridge, _) = bridge_within(BridgeLimits {
        request_bytes_max: 1 << 20,
        ..LIMITS
    });
    let message = format!("x{}", "ü".repeat(100_000));
    let answer = program
        .ask(&call(7, "fail", json!({"message": message})))
        .await;
    let told = answer["error"]["message"].as_str().unwrap();
    assert_eq!((told.len(), &told[..3]), (64 * 1024 - 1, "xü"));
    bridge.end().await;
}

#[tokio::test]
async fn a_call_that_panics_is_internal_and_the_others_go_on() {
    let (mut program, bridge, _) = bridge();
    let answer = program.ask(&call(1, "panic", json!({}))).await;
    assert_eq!(answer["error"]["kind"], "internal");
    program.is_fine().await;
    bridge.end().await;
}

#[tokio::test]
async fn answers_come_in_any_order() {
    let (mut program, bridge, tools) = bridge();
    program.send(&call(1, "wait", json!({}))).await;
    program.is_fine().await;
    tools.ends.add_permits(1);
    let answer = program.answer().await.unwrap();
    assert_eq!(answer, json!({"id": 1, "result": null}));
    // The number is free again.
    assert_eq!(program.ask(&call(1, "echo", json!({}))).await["id"], 1);
    assert_eq!(bridge.end().await.violations, []);
}

#[tokio::test]
async fn a_frame_in_single_bytes_is_a_frame() {
    let (mut program, bridge, _) = bridge();
    let message = serde_json::to_vec(&call(3, "echo", json!({}))).unwrap();
    for byte in framed(&message) {
        program.send_bytes(&[byte]).await;
    }
    assert_eq!(program.answer().await.unwrap()["id"], 3);
    bridge.end().await;
}

/// 94: they wait for their turn, and each is answered once.
#[tokio::test]
async fn ten_thousand_calls_at_once_are_made_a_few_at_a_time() {
    const CALLS: u64 = 10_000;
    let (program, bridge, tools) = bridge();
    let (mut reader, mut writer) = program.0.into_split();
    let asking = tokio::spawn(async move {
        for id in 0..CALLS {
            let message = serde_json::to_vec(&call(id, "echo", json!({"id": id}))).unwrap();
            writer.write_all(&framed(&message)).await.unwrap();
        }
        writer
    });
    let mut answered = vec![false; CALLS as usize];
    for _ in 0..CALLS {
        let mut frame = vec![0; reader.read_u32().await.unwrap() as usize];
        reader.read_exact(&mut frame).await.unwrap();
        let answer: Value = serde_json::from_slice(&frame).unwrap();
        assert_eq!(answer["id"], answer["result"]["id"]);
        let seen = &mut answered[answer["id"].as_u64().unwrap() as usize];
        assert!(!std::mem::replace(seen, true), "{answer} came twice");
    }
    let _writer = asking.await.unwrap();
    assert!(tools.running_most.load(Ordering::SeqCst) <= LIMITS.at_once_max);
    let served = bridge.end().await;
    assert_eq!(
        served,
        BridgeSummary {
            calls: CALLS,
            ..BridgeSummary::default()
        }
    );
}
