//! Server-to-client requests, and the streams on which they are sent.

use super::*;

const ELICIT: &str =
    r#"{"jsonrpc":"2.0","id":41,"method":"elicitation/create","params":{"message":"?"}}"#;
const ANSWER: &str = r#"{"jsonrpc":"2.0","id":41,"result":{"action":"accept"}}"#;

#[tokio::test]
async fn the_latest_tool_call_carries_the_question_and_gets_one_answer() {
    let mut bench = older().await;
    let mut one = bench.call(&tools_call(1)).await;
    let mut two = bench.call(&tools_call(2)).await;
    let mut list = bench
        .call(r#"{"jsonrpc":"2.0","id":"c:0000000000000000000000000000000a:3","method":"tools/list"}"#)
        .await;
    let mut general = bench.listen(None).await;
    bench.server_sends(ELICIT).await;
    bench
        .server_sends(r#"{"method":"notifications/message","params":{"level":"info"}}"#)
        .await;
    assert_eq!(two.data().await["method"], "elicitation/create");
    assert_eq!(two.data().await["method"], "notifications/message");
    for _ in 0..2 {
        let reply = bench.post(ANSWER).await;
        assert_eq!(reply.status, StatusCode::ACCEPTED);
    }
    assert_eq!(
        bench.server_receives().await,
        serde_json::from_str::<Value>(ANSWER).unwrap()
    );
    assert!(bench.server_receives_nothing().await);
    for id in 1..=3 {
        bench.server_sends(&result(id)).await;
    }
    assert_eq!(two.rest().await.len(), 1);
    assert_eq!(one.rest().await.len(), 1);
    assert_eq!(list.rest().await.len(), 1);
    bench.connection.close();
    assert!(general.try_next().await.unwrap().is_err());
}

#[tokio::test]
async fn without_a_call_questions_use_the_general_stream() {
    let mut bench = older().await;
    let mut general = bench.listen(None).await;
    bench.server_sends(ELICIT).await;
    assert_eq!(general.data().await["id"], 41);
    bench.post(ANSWER).await;
    assert_eq!(bench.server_receives().await["id"], 41);
}

#[tokio::test]
async fn undeclared_capabilities_are_refused() {
    let mut bench = bench(options(), r#"{"elicitation":{}}"#, OLDER).await;
    let mut stream = bench.call(&tools_call(1)).await;
    for (id, method, params) in [
        (1, "sampling/createMessage", "{}"),
        (2, "roots/list", "{}"),
        (3, "elicitation/create", r#"{"mode":"url"}"#),
    ] {
        bench
            .server_sends(&format!(
                r#"{{"id":{id},"method":"{method}","params":{params}}}"#
            ))
            .await;
        let refusal = bench.server_receives().await;
        assert_eq!(
            (&refusal["id"], &refusal["error"]["code"]),
            (&json!(id), &json!(-32601))
        );
    }
    bench.server_sends(&result(1)).await;
    assert_eq!(stream.rest().await.len(), 1);
}

#[tokio::test]
async fn the_connection_answers_pings() {
    let mut bench = older().await;
    let mut stream = bench.call(&tools_call(1)).await;
    bench
        .server_sends(r#"{"jsonrpc":"2.0","id":"p\"1","method":"ping"}"#)
        .await;
    assert_eq!(
        bench.server_receives().await,
        json!({"jsonrpc":"2.0","id":"p\"1","result":{}})
    );
    bench.server_sends(&result(1)).await;
    assert_eq!(stream.rest().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_expired_question_is_cancelled_on_both_sides() {
    let mut bench = older().await;
    let mut stream = bench.call(&tools_call(1)).await;
    bench.server_sends(ELICIT).await;
    assert_eq!(stream.data().await["id"], 41);
    let refusal = bench.server_receives().await;
    assert_eq!(
        (&refusal["id"], &refusal["error"]["code"]),
        (&json!(41), &json!(-32001))
    );
    let notification = stream.data().await;
    assert_eq!(notification["method"], "notifications/cancelled");
    assert_eq!(notification["params"]["requestId"], 41);
    // The answer comes too late.
    assert_eq!(bench.post(ANSWER).await.status, StatusCode::ACCEPTED);
    assert!(bench.server_receives_nothing().await);
}

#[tokio::test(start_paused = true)]
async fn a_question_waits_for_a_listener_for_a_limited_time() {
    let mut bench = older().await;
    bench.server_sends(ELICIT).await;
    bench.wait_processed().await;
    let mut general = bench.listen(None).await;
    assert_eq!(general.data().await["id"], 41);
    drop(general);
    bench.post(ANSWER).await;
    assert_eq!(bench.server_receives().await["result"]["action"], "accept");
    bench.server_sends(ELICIT).await;
    let refusal = bench.server_receives().await;
    assert_eq!(
        (&refusal["id"], &refusal["error"]["code"]),
        (&json!(41), &json!(-32000))
    );
    // It is no longer queued.
    let mut general = bench.listen(None).await;
    bench
        .server_sends(r#"{"method":"notifications/tools/list_changed"}"#)
        .await;
    assert_eq!(
        general.data().await["method"],
        "notifications/tools/list_changed"
    );
}

#[tokio::test]
async fn a_question_outlives_the_call_that_caused_it() {
    let mut bench = older().await;
    let mut stream = bench.call(&tools_call(1)).await;
    bench.server_sends(ELICIT).await;
    bench.server_sends(&result(1)).await;
    assert_eq!(stream.rest().await.len(), 2);
    bench.post(ANSWER).await;
    assert_eq!(bench.server_receives().await["id"], 41);
}

#[tokio::test]
async fn a_withdrawal_goes_to_the_questions_stream() {
    let mut bench = older().await;
    let mut stream = bench.call(&tools_call(1)).await;
    bench.server_sends(ELICIT).await;
    bench.wait_processed().await;
    let _later = bench.call(&tools_call(2)).await;
    bench
        .server_sends(r#"{"method":"notifications/cancelled","params":{"requestId":41}}"#)
        .await;
    assert_eq!(stream.data().await["id"], 41);
    assert_eq!(stream.data().await["method"], "notifications/cancelled");
    bench.post(ANSWER).await;
    assert!(bench.server_receives_nothing().await);
}

#[tokio::test]
async fn server_ids_are_independent_and_unique() {
    let mut bench = older().await;
    let mut stream = bench.call(&tools_call(1)).await;
    // The server's request ids are independent of the client's.
    bench
        .server_sends(r#"{"id":"c:0000000000000000000000000000000a:1","method":"roots/list"}"#)
        .await;
    bench
        .server_sends(
            r#"{"id":"c:0000000000000000000000000000000a:1","method":"sampling/createMessage"}"#,
        )
        .await;
    assert_eq!(stream.data().await["method"], "roots/list");
    bench
        .post(r#"{"jsonrpc":"2.0","id":"c:0000000000000000000000000000000a:1","result":{"roots":[]}}"#)
        .await;
    assert_eq!(bench.server_receives().await["result"]["roots"], json!([]));
    bench.server_sends(&result(1)).await;
    assert_eq!(stream.rest().await.len(), 1);
}

#[tokio::test]
async fn too_many_questions_are_refused() {
    let mut bench = older().await;
    let _stream = bench.call(&tools_call(1)).await;
    for id in 0..QUESTIONS_MAX {
        bench
            .server_sends(&format!(r#"{{"id":{id},"method":"roots/list"}}"#))
            .await;
    }
    bench
        .server_sends(r#"{"id":"more","method":"roots/list"}"#)
        .await;
    let refusal = bench.server_receives().await;
    assert_eq!(
        (&refusal["id"], &refusal["error"]["code"]),
        (&json!("more"), &json!(-32000))
    );
}
