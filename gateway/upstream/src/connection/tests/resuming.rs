//! Streams that break and are resumed.

use super::*;

async fn progress(bench: &Bench, id: u64, number: u64) {
    bench
        .server_sends(&format!(
            r#"{{"method":"notifications/progress","params":{{"progressToken":"c:0000000000000000000000000000000a:{id}","progress":{number}}}}}"#
        ))
        .await;
}

#[tokio::test]
async fn a_call_survives_its_clients_disconnect() {
    let mut bench = bench(options(), ALL, NEWER).await;
    let mut stream = bench.call(&tools_call(1)).await;
    let primed = stream.next().await.unwrap();
    drop(stream);
    let _other = bench.call(&tools_call(2)).await;
    progress(&bench, 1, 1).await;
    progress(&bench, 2, 1).await;
    progress(&bench, 1, 2).await;
    bench.wait_processed().await;
    let mut resumed = bench.listen(primed.id.as_deref()).await;
    assert_eq!(resumed.data().await["params"]["progress"], 1);
    let second = resumed.next().await.unwrap();
    assert_eq!(second.data["params"]["progress"], 2);
    // The newest reader replaces the earlier one.
    let mut newest = bench.listen(second.id.as_deref()).await;
    assert_eq!(resumed.next().await, None);
    progress(&bench, 1, 3).await;
    bench.server_sends(&result(1)).await;
    assert_eq!(newest.data().await["params"]["progress"], 3);
    let answer = newest.next().await.unwrap();
    assert_eq!(answer.data["result"]["of"], 1);
    assert_eq!(newest.next().await, None);
    // All events are kept, and none follows the answer.
    let all = bench.listen(primed.id.as_deref()).await.rest().await;
    assert_eq!(all.len(), 4);
    assert_eq!(bench.listen(answer.id.as_deref()).await.next().await, None);
}

#[tokio::test]
async fn a_question_is_replayed_to_a_resuming_client() {
    let mut bench = bench(options(), ALL, NEWER).await;
    let mut stream = bench.call(&tools_call(1)).await;
    let primed = stream.next().await.unwrap();
    drop(stream);
    bench
        .server_sends(r#"{"id":1,"method":"roots/list"}"#)
        .await;
    bench.wait_processed().await;
    let mut resumed = bench.listen(primed.id.as_deref()).await;
    assert_eq!(resumed.data().await["method"], "roots/list");
    bench.post(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#).await;
    assert_eq!(bench.server_receives().await["id"], 1);
}

#[tokio::test]
async fn an_evicted_answer_is_an_error() {
    let mut few = options();
    few.events_max = 2;
    let mut bench = bench(few, ALL, NEWER).await;
    let mut stream = bench.call(&tools_call(1)).await;
    let primed = stream.next().await.unwrap();
    drop(stream);
    bench.server_sends(&result(1)).await;
    let _other = bench.call(&tools_call(2)).await;
    for number in 0..2 {
        progress(&bench, 2, number).await;
    }
    bench.wait_processed().await;
    let rest = bench.listen(primed.id.as_deref()).await.rest().await;
    assert_eq!(rest.len(), 1);
    assert_eq!(
        (&rest[0]["id"], &rest[0]["error"]["code"]),
        (
            &json!("c:0000000000000000000000000000000a:1"),
            &json!(-32012)
        )
    );
}

#[tokio::test]
async fn evicted_events_are_reported_on_every_stream() {
    let mut few = options();
    few.events_max = 2;
    let mut bench = bench(few, ALL, NEWER).await;
    let mut general = bench.listen(None).await;
    let after = general.next().await.unwrap().id;
    for _ in 0..3 {
        bench
            .server_sends(r#"{"method":"notifications/tools/list_changed"}"#)
            .await;
    }
    bench.wait_processed().await;
    let mut resumed = bench.listen(after.as_deref()).await;
    assert_eq!(resumed.data().await["params"]["level"], "warning");

    let mut stream = bench.call(&tools_call(1)).await;
    let after = stream.next().await.unwrap().id;
    drop(stream);
    for number in 0..3 {
        progress(&bench, 1, number).await;
    }
    bench.wait_processed().await;
    let mut resumed = bench.listen(after.as_deref()).await;
    assert_eq!(resumed.data().await["params"]["level"], "warning");
    assert_eq!(resumed.data().await["params"]["progress"], 1);
}

#[tokio::test]
async fn resuming_a_call_of_an_earlier_connection_is_an_error() {
    let mut bench = older().await;
    // A call with the same id is in flight, but it is another one.
    let _other = bench.call(&tools_call(1)).await;
    for foreign in [
        "m:6:c.0000000000000000000000000000000a.MQ:3",
        "m:7:c.0000000000000000000000000000000a.MQ:0",
        "m:7:c.0000000000000000000000000000000a.Mg:1",
    ] {
        let rest = bench.listen(Some(foreign)).await.rest().await;
        assert_eq!(rest.len(), 1, "{foreign}");
        assert_eq!(rest[0]["error"]["code"], -32012);
    }
}

#[tokio::test]
async fn an_unknown_event_id_is_ignored() {
    let mut bench = older().await;
    for foreign in ["", "17", "m:6:g:3"] {
        let mut general = bench.listen(Some(foreign)).await;
        bench
            .server_sends(r#"{"method":"notifications/tools/list_changed"}"#)
            .await;
        assert_eq!(
            general.data().await["method"],
            "notifications/tools/list_changed"
        );
        let second = bench.connection.serve(&get(Some(foreign))).await.unwrap();
        assert_eq!(second.status, StatusCode::CONFLICT);
    }
    bench.wait_processed().await;
}
