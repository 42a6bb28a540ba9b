//! What the server asks the client, and where.

use super::*;

const ELICIT: &str =
    r#"{"jsonrpc":"2.0","id":41,"method":"elicitation/create","params":{"message":"?"}}"#;
const ANSWER: &str = r#"{"jsonrpc":"2.0","id":41,"result":{"action":"accept"}}"#;

#[tokio::test]
async fn the_tool_that_was_called_last_asks_and_gets_its_answer_once() {
    let mut bench = older().await;
    let mut one = bench.call(&tools_call(1)).await;
    let mut two = bench.call(&tools_call(2)).await;
    let mut list = bench
        .call(r#"{"jsonrpc":"2.0","id":"c:3","method":"tools/list"}"#)
        .await;
    let mut general = bench.listen(None).await;
    bench.says(ELICIT).await;
    bench
        .says(r#"{"method":"notifications/message","params":{"level":"info"}}"#)
        .await;
    assert_eq!(two.data().await["method"], "elicitation/create");
    assert_eq!(two.data().await["method"], "notifications/message");
    for _ in 0..2 {
        let reply = bench.post(ANSWER).await;
        assert_eq!(reply.status, StatusCode::ACCEPTED);
    }
    assert_eq!(
        bench.sent().await,
        serde_json::from_str::<Value>(ANSWER).unwrap()
    );
    assert!(bench.is_sent_nothing().await);
    for id in 1..=3 {
        bench.says(&result(id)).await;
    }
    assert_eq!(two.rest().await.len(), 1);
    assert_eq!(one.rest().await.len(), 1);
    assert_eq!(list.rest().await.len(), 1);
    bench.connection.close();
    assert!(general.try_next().await.unwrap().is_err());
}

#[tokio::test]
async fn without_a_call_the_client_is_asked_where_it_listens() {
    let mut bench = older().await;
    let mut general = bench.listen(None).await;
    bench.says(ELICIT).await;
    assert_eq!(general.data().await["id"], 41);
    bench.post(ANSWER).await;
    assert_eq!(bench.sent().await["id"], 41);
}

#[tokio::test]
async fn what_the_client_cannot_do_it_is_not_asked() {
    let mut bench = bench(options(), r#"{"elicitation":{}}"#, OLDER).await;
    let mut stream = bench.call(&tools_call(1)).await;
    for (id, method, params) in [
        (1, "sampling/createMessage", "{}"),
        (2, "roots/list", "{}"),
        (3, "elicitation/create", r#"{"mode":"url"}"#),
    ] {
        bench
            .says(&format!(
                r#"{{"id":{id},"method":"{method}","params":{params}}}"#
            ))
            .await;
        let refusal = bench.sent().await;
        assert_eq!(
            (&refusal["id"], &refusal["error"]["code"]),
            (&json!(id), &json!(-32601))
        );
    }
    bench.says(&result(1)).await;
    assert_eq!(stream.rest().await.len(), 1);
}

#[tokio::test]
async fn a_ping_is_answered_here() {
    let mut bench = older().await;
    let mut stream = bench.call(&tools_call(1)).await;
    bench
        .says(r#"{"jsonrpc":"2.0","id":"p\"1","method":"ping"}"#)
        .await;
    assert_eq!(
        bench.sent().await,
        json!({"jsonrpc":"2.0","id":"p\"1","result":{}})
    );
    bench.says(&result(1)).await;
    assert_eq!(stream.rest().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_question_that_is_not_answered_is_given_up_on_both_sides() {
    let mut bench = older().await;
    let mut stream = bench.call(&tools_call(1)).await;
    bench.says(ELICIT).await;
    assert_eq!(stream.data().await["id"], 41);
    let refusal = bench.sent().await;
    assert_eq!(
        (&refusal["id"], &refusal["error"]["code"]),
        (&json!(41), &json!(-32001))
    );
    let told = stream.data().await;
    assert_eq!(told["method"], "notifications/cancelled");
    assert_eq!(told["params"]["requestId"], 41);
    // The answer comes too late.
    assert_eq!(bench.post(ANSWER).await.status, StatusCode::ACCEPTED);
    assert!(bench.is_sent_nothing().await);
}

#[tokio::test(start_paused = true)]
async fn a_question_waits_for_a_listener_and_not_for_ever() {
    let mut bench = older().await;
    bench.says(ELICIT).await;
    bench.is_heard().await;
    let mut general = bench.listen(None).await;
    assert_eq!(general.data().await["id"], 41);
    drop(general);
    bench.post(ANSWER).await;
    assert_eq!(bench.sent().await["result"]["action"], "accept");
    bench.says(ELICIT).await;
    let refusal = bench.sent().await;
    assert_eq!(
        (&refusal["id"], &refusal["error"]["code"]),
        (&json!(41), &json!(-32000))
    );
    // It waits no more.
    let mut general = bench.listen(None).await;
    bench
        .says(r#"{"method":"notifications/tools/list_changed"}"#)
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
    bench.says(ELICIT).await;
    bench.says(&result(1)).await;
    assert_eq!(stream.rest().await.len(), 2);
    bench.post(ANSWER).await;
    assert_eq!(bench.sent().await["id"], 41);
}

#[tokio::test]
async fn a_withdrawn_question_is_withdrawn_where_it_was_asked() {
    let mut bench = older().await;
    let mut stream = bench.call(&tools_call(1)).await;
    bench.says(ELICIT).await;
    bench.is_heard().await;
    let _later = bench.call(&tools_call(2)).await;
    bench
        .says(r#"{"method":"notifications/cancelled","params":{"requestId":41}}"#)
        .await;
    assert_eq!(stream.data().await["id"], 41);
    assert_eq!(stream.data().await["method"], "notifications/cancelled");
    bench.post(ANSWER).await;
    assert!(bench.is_sent_nothing().await);
}

#[tokio::test]
async fn ids_of_the_server_are_its_own_and_used_once() {
    let mut bench = older().await;
    let mut stream = bench.call(&tools_call(1)).await;
    // The id of the client's own request means another request when the server uses it.
    bench.says(r#"{"id":"c:1","method":"roots/list"}"#).await;
    bench
        .says(r#"{"id":"c:1","method":"sampling/createMessage"}"#)
        .await;
    assert_eq!(stream.data().await["method"], "roots/list");
    bench
        .post(r#"{"jsonrpc":"2.0","id":"c:1","result":{"roots":[]}}"#)
        .await;
    assert_eq!(bench.sent().await["result"]["roots"], json!([]));
    bench.says(&result(1)).await;
    assert_eq!(stream.rest().await.len(), 1);
}

#[tokio::test]
async fn questions_without_end_are_refused() {
    let mut bench = older().await;
    let _stream = bench.call(&tools_call(1)).await;
    for id in 0..QUESTIONS_MAX {
        bench
            .says(&format!(r#"{{"id":{id},"method":"roots/list"}}"#))
            .await;
    }
    bench.says(r#"{"id":"more","method":"roots/list"}"#).await;
    let refusal = bench.sent().await;
    assert_eq!(
        (&refusal["id"], &refusal["error"]["code"]),
        (&json!("more"), &json!(-32000))
    );
}
