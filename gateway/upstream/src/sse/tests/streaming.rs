//! Messages from the server.

use std::time::Duration;

use super::fake::{ENDPOINT, EVENT_BYTES_MAX, Fake, PATIENCE, ended, next_message};
use crate::connection::link::LinkEnd;

/// Three messages, and everything that may surround them.
const SCRIPT: &str = "\u{feff}: hello\n\nretry: 3000\n\nevent: endpoint\nid: 0\ndata: /messages?sessionId=7\n\n\
    event: message\ndata: {\"one\":1}\n\n: keep-alive\n\nid: 5\n\nevent: message\ndata\n\nevent: ping\ndata: x\n\n\
    data:{\"two\":\ndata: \"zwei\"}\n\n\
    event: endpoint\ndata: http://elsewhere.example/\n\nevent: message\nid: 6\nretry: 1\ndata: {\"three\":3}\n\n";

async fn messages_of(script: &str) -> Vec<String> {
    let mut fake = Fake::start((200, "text/event-stream"), |_| unreachable!()).await;
    let said = script.to_owned();
    let say = std::mem::replace(&mut fake.say, tokio::sync::mpsc::channel(1).0);
    tokio::spawn(async move {
        for byte in said.into_bytes() {
            let _ = say.send(bytes::Bytes::from(vec![byte])).await;
        }
    });
    let mut link = fake.connected().await;
    let mut messages = Vec::new();
    while let Some(message) = next_message(&mut link).await {
        messages.push(message);
    }
    assert!(matches!(ended(&mut link).await, LinkEnd::Broken(_)));
    messages
}

#[tokio::test]
async fn events_arrive_for_any_chunks_and_line_ends() {
    let expected = ["{\"one\":1}", "{\"two\": \"zwei\"}", "{\"three\":3}"];
    for line_end in ["\n", "\r\n", "\r"] {
        let script = SCRIPT.replace('\n', line_end);
        assert_eq!(messages_of(&script).await, expected, "{line_end:?}");
    }
}

#[tokio::test]
async fn the_end_of_the_stream_is_the_end_of_the_link() {
    let mut fake = Fake::accepting().await;
    let mut link = fake.connected().await;
    fake.says("data: {\"last\":1}\n\ndata: {\"cut").await;
    fake.say = tokio::sync::mpsc::channel(1).0;
    assert_eq!(
        next_message(&mut link).await.as_deref(),
        Some("{\"last\":1}")
    );
    let LinkEnd::Broken(reason) = ended(&mut link).await else {
        panic!("the server ended the stream")
    };
    assert_eq!(&*reason, "the server ended its event stream");
}

/// The message before it and the one after it are read.
#[tokio::test]
async fn an_answer_that_is_too_long_is_an_error_and_the_link_lasts() {
    let fake = Fake::accepting().await;
    let mut link = fake.connected().await;
    let long = "x".repeat(EVENT_BYTES_MAX);
    for (text, is_answer) in [
        (
            format!(r#"{{"id":"c:1","result":{{"text":"{long}"}}}}"#),
            true,
        ),
        (
            format!("{{\"result\":{{\"text\":\ndata: \"{long}\"}},\ndata: \"id\":\"c:1\"}}"),
            true,
        ),
        (format!(r#"{{"method":"note","params":"{long}"}}"#), false),
    ] {
        fake.says(&format!(
            "data: {{\"before\":1}}\n\nid: 7\ndata: {text}\n\ndata: {{\"after\":1}}\n\n"
        ))
        .await;
        let before = next_message(&mut link).await;
        assert_eq!(before.as_deref(), Some("{\"before\":1}"));
        if is_answer {
            let error = next_message(&mut link).await.unwrap_or_default();
            for part in [r#""id":"c:1""#, "-32011", "(limit 4096)", "has run"] {
                assert!(error.contains(part), "{part}: {error}");
            }
        }
        let after = next_message(&mut link).await;
        assert_eq!(after.as_deref(), Some("{\"after\":1}"));
    }
}

#[tokio::test]
async fn a_slow_reader_blocks_the_server() {
    let fake = Fake::start((200, "text/event-stream"), |_| unreachable!()).await;
    fake.says(ENDPOINT).await;
    let mut link = fake.connected().await;
    let say = fake.say.clone();
    let talking = tokio::spawn(async move {
        for number in 0..200_000 {
            let event = format!("data: {{\"number\":{number}}}\n\n");
            say.send(event.into()).await.unwrap();
        }
    });
    // No reader yet.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!talking.is_finished());
    for number in 0..200_000 {
        let heard = next_message(&mut link).await.unwrap();
        assert_eq!(heard, format!("{{\"number\":{number}}}"));
    }
    talking.await.unwrap();
}

#[tokio::test]
async fn a_link_that_is_dropped_closes_the_stream() {
    let fake = Fake::accepting().await;
    let link = fake.connected().await;
    let (end, gone) = (link.end.clone(), link.gone.clone());
    drop(link);
    tokio::time::timeout(PATIENCE, gone.cancelled())
        .await
        .unwrap();
    assert_eq!(*end.borrow(), Some(LinkEnd::Closed));
    // The server notices: its stream has no reader any more.
    let noticed = async {
        while fake.say.send(": anybody\n\n".into()).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, noticed).await.unwrap();
}
