//! Messages to the server.

use std::time::Duration;

use serde_json::{Value, json};

use super::fake::{Answer, Fake, ended, next_message, send};
use crate::connection::link::LinkEnd;

const CALL: &str = r#"{"jsonrpc":"2.0","id":"c:0000000000000000000000000000000a:\"a\"","method":"tools/call","params":{}}"#;
const NOTIFICATION: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
const ANSWER: &str = r#"{"jsonrpc":"2.0","id":3,"result":{}}"#;

fn error(message: Option<String>) -> (Value, i64, String) {
    let response: Value = serde_json::from_str(&message.unwrap()).unwrap();
    let message = response["error"]["message"].as_str().unwrap().to_owned();
    (
        response["id"].clone(),
        response["error"]["code"].as_i64().unwrap(),
        message,
    )
}

#[tokio::test]
async fn messages_arrive_unchanged_and_in_order() {
    // Later messages would be accepted sooner.
    let mut fake = Fake::answering(|message| match message.parse::<u64>() {
        Ok(number) => Answer::Slowly(Duration::from_millis(30_u64.saturating_sub(number))),
        Err(_) => Answer::Status(200),
    })
    .await;
    let link = fake.connected().await;
    for number in 0..40 {
        send(&link, &number.to_string()).await;
    }
    send(&link, CALL).await;
    for number in 0..40 {
        assert_eq!(fake.next_posted().await, number.to_string());
    }
    assert_eq!(fake.next_posted().await, CALL);
}

#[tokio::test]
async fn a_late_response_does_not_block_the_next_message() {
    let mut fake = Fake::answering(|message| match message {
        CALL => Answer::Never,
        _ => Answer::Status(202),
    })
    .await;
    let mut link = fake.connected().await;
    send(&link, CALL).await;
    assert_eq!(fake.next_posted().await, CALL);
    send(&link, ANSWER).await;
    assert_eq!(fake.next_posted().await, ANSWER);
    fake.says("data: {\"done\":true}\n\n").await;
    assert_eq!(
        next_message(&mut link).await.as_deref(),
        Some("{\"done\":true}")
    );
}

#[tokio::test]
async fn a_request_that_is_refused_is_answered_and_the_link_lives() {
    let mut fake = Fake::answering(|message| match message {
        CALL => Answer::Status(413),
        NOTIFICATION => Answer::Status(500),
        _ => Answer::Status(202),
    })
    .await;
    let mut link = fake.connected().await;
    send(&link, NOTIFICATION).await;
    send(&link, CALL).await;
    let (id, code, message) = error(next_message(&mut link).await);
    assert_eq!(
        (id, code),
        (json!("c:0000000000000000000000000000000a:\"a\""), -32011)
    );
    assert_eq!(
        message,
        "the server refused the message with HTTP status 413"
    );
    send(&link, ANSWER).await;
    for expected in [NOTIFICATION, CALL, ANSWER] {
        assert_eq!(fake.next_posted().await, expected);
    }
}

#[tokio::test]
async fn a_rewritten_id_fits_an_error() {
    let fake = Fake::answering(|_| Answer::Status(400)).await;
    let mut link = fake.connected().await;
    let long = "x".repeat(5000);
    send(&link, &format!(r#"{{"id":"{long}","method":"ping"}}"#)).await;
    let (id, ..) = error(next_message(&mut link).await);
    assert_eq!(id, json!(long));
}

#[tokio::test]
async fn a_broken_connection_leaves_open_whether_the_call_ran() {
    let fake = Fake::answering(|_| Answer::Break).await;
    let mut link = fake.connected().await;
    send(&link, CALL).await;
    let (_, code, message) = error(next_message(&mut link).await);
    assert_eq!(code, -32012);
    assert!(message.ends_with("may have been delivered"), "{message}");
}

#[tokio::test]
async fn a_server_that_does_not_know_the_session_ends_the_link() {
    let fake = Fake::answering(|_| Answer::Status(404)).await;
    let mut link = fake.connected().await;
    send(&link, CALL).await;
    let (id, code, _) = error(next_message(&mut link).await);
    assert_eq!(
        (id, code),
        (json!("c:0000000000000000000000000000000a:\"a\""), -32009)
    );
    let LinkEnd::Broken(reason) = ended(&mut link).await else {
        panic!("the server ended the session")
    };
    assert!(
        reason.ends_with("HTTP status 404: its session is gone"),
        "{reason}"
    );
    assert!(link.to_server.is_closed());
}

#[tokio::test]
async fn a_server_without_responses_ends_the_link() {
    let fake = Fake::answering(|_| Answer::Never).await;
    let mut link = fake.connected().await;
    // From here on, time advances automatically.
    tokio::time::pause();
    for _ in 0..64 {
        send(&link, ANSWER).await;
    }
    assert_eq!(link.from_server.recv().await, None);
    let end = link.end.borrow().clone();
    let LinkEnd::Broken(reason) = end.unwrap() else {
        panic!("the server answers nothing")
    };
    assert_eq!(&*reason, "the server has left 64 messages unanswered");
}

#[tokio::test]
async fn the_last_message_is_delivered() {
    let mut fake = Fake::accepting().await;
    let mut link = fake.connected().await;
    send(&link, NOTIFICATION).await;
    send(&link, ANSWER).await;
    link.to_server = tokio::sync::mpsc::channel(1).0;
    assert_eq!(fake.next_posted().await, NOTIFICATION);
    assert_eq!(fake.next_posted().await, ANSWER);
    assert_eq!(ended(&mut link).await, LinkEnd::Closed);
}
