//! The stream of what belongs to no call.

use super::*;

#[tokio::test]
async fn there_is_one_at_a_time_and_it_is_free_at_once() {
    let bench = older().await;
    let first = bench.listen(None).await;
    let second = bench.connection.serve(&get(None)).await.unwrap();
    assert_eq!(second.status, StatusCode::CONFLICT);
    drop(first);
    bench.listen(None).await;
}

#[tokio::test]
async fn what_nobody_heard_waits_and_each_message_goes_to_one_stream() {
    let mut bench = older().await;
    let mut call = bench.call(&tools_call(1)).await;
    for text in [
        r#"{"method":"notifications/tools/list_changed"}"#,
        r#"{"method":"notifications/resources/updated","params":{"uri":"a"}}"#,
        r#"{"method":"notifications/tools/list_changed"}"#,
        r#"{"method":"notifications/resources/updated","params":{"uri":"b"}}"#,
    ] {
        bench.says(text).await;
    }
    bench.is_heard().await;
    let mut general = bench.listen(None).await;
    bench
        .says(r#"{"method":"notifications/prompts/list_changed"}"#)
        .await;
    assert_eq!(
        general.data().await["method"],
        "notifications/tools/list_changed"
    );
    assert_eq!(general.data().await["params"]["uri"], "a");
    assert_eq!(general.data().await["params"]["uri"], "b");
    assert_eq!(
        general.data().await["method"],
        "notifications/prompts/list_changed"
    );
    bench.says(&result(1)).await;
    assert_eq!(call.rest().await.len(), 1);
}

#[tokio::test]
async fn progress_of_a_task_goes_on_after_its_call() {
    let mut bench = older().await;
    let mut call = bench.call(&tools_call(1)).await;
    bench.says(&result(1)).await;
    assert_eq!(call.rest().await.len(), 1);
    let mut general = bench.listen(None).await;
    bench
        .says(r#"{"method":"notifications/progress","params":{"progressToken":"c:1"}}"#)
        .await;
    assert_eq!(general.data().await["params"]["progressToken"], "c:1");
}

#[tokio::test]
async fn it_is_gone_on_from_an_event_by_whoever_read_it() {
    let mut bench = older().await;
    let mut general = bench.listen(None).await;
    for uri in ["a", "b", "c"] {
        bench
            .says(&format!(
                r#"{{"method":"notifications/resources/updated","params":{{"uri":"{uri}"}}}}"#
            ))
            .await;
    }
    let first = general.next().await.unwrap();
    let mut call = bench.call(&tools_call(1)).await;
    bench.is_heard().await;
    // The earlier body may not have noticed yet that its client is gone.
    let mut resumed = bench.listen(first.id.as_deref()).await;
    assert_eq!(general.rest().await.len(), 2);
    assert_eq!(resumed.data().await["params"]["uri"], "b");
    assert_eq!(resumed.data().await["params"]["uri"], "c");
    bench
        .says(r#"{"method":"notifications/tools/list_changed"}"#)
        .await;
    assert_eq!(
        resumed.data().await["method"],
        "notifications/tools/list_changed"
    );
    bench.says(&result(1)).await;
    assert_eq!(call.rest().await.len(), 1);
}
