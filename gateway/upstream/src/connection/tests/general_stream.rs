//! The general stream, for messages that belong to no call.

use super::*;

#[tokio::test]
async fn one_general_stream_at_a_time() {
    let bench = older().await;
    let first = bench.listen(None).await;
    let second = bench.connection.serve(&get(None)).await.unwrap();
    assert_eq!(second.status, StatusCode::CONFLICT);
    drop(first);
    bench.listen(None).await;
}

#[tokio::test]
async fn unread_messages_wait_and_go_to_one_stream() {
    let mut bench = older().await;
    let mut call = bench.call(&tools_call(1)).await;
    for text in [
        r#"{"method":"notifications/tools/list_changed"}"#,
        r#"{"method":"notifications/resources/updated","params":{"uri":"a"}}"#,
        r#"{"method":"notifications/tools/list_changed"}"#,
        r#"{"method":"notifications/resources/updated","params":{"uri":"b"}}"#,
    ] {
        bench.server_sends(text).await;
    }
    bench.wait_processed().await;
    let mut general = bench.listen(None).await;
    bench
        .server_sends(r#"{"method":"notifications/prompts/list_changed"}"#)
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
    bench.server_sends(&result(1)).await;
    assert_eq!(call.rest().await.len(), 1);
}

#[tokio::test]
async fn task_progress_continues_after_its_call() {
    let mut bench = older().await;
    let mut call = bench.call(&tools_call(1)).await;
    bench.server_sends(&result(1)).await;
    assert_eq!(call.rest().await.len(), 1);
    let mut general = bench.listen(None).await;
    bench
        .server_sends(r#"{"method":"notifications/progress","params":{"progressToken":"c:0000000000000000000000000000000a:1"}}"#)
        .await;
    assert_eq!(
        general.data().await["params"]["progressToken"],
        "c:0000000000000000000000000000000a:1"
    );
}

#[tokio::test]
async fn a_resume_replaces_the_earlier_reader() {
    let mut bench = older().await;
    let mut general = bench.listen(None).await;
    for uri in ["a", "b", "c"] {
        bench
            .server_sends(&format!(
                r#"{{"method":"notifications/resources/updated","params":{{"uri":"{uri}"}}}}"#
            ))
            .await;
    }
    let first = general.next().await.unwrap();
    let mut call = bench.call(&tools_call(1)).await;
    bench.wait_processed().await;
    // The connection may not have noticed yet that the earlier reader is gone.
    let mut resumed = bench.listen(first.id.as_deref()).await;
    assert_eq!(general.rest().await.len(), 2);
    assert_eq!(resumed.data().await["params"]["uri"], "b");
    assert_eq!(resumed.data().await["params"]["uri"], "c");
    bench
        .server_sends(r#"{"method":"notifications/tools/list_changed"}"#)
        .await;
    assert_eq!(
        resumed.data().await["method"],
        "notifications/tools/list_changed"
    );
    bench.server_sends(&result(1)).await;
    assert_eq!(call.rest().await.len(), 1);
}
