//! Servers to which no link is made.

use std::time::Duration;

use tokio::net::TcpListener;

use super::fake::{Answer, EVENT_BYTES_MAX, Fake, PATIENCE, connect_to, instance};
use crate::sse::ConnectError;

const EVENTS: &str = "text/event-stream; charset=utf-8";

/// Why a server with this response head and these events is refused.
async fn refusal(head: (u16, &'static str), said: &str, ends: Ends) -> ConnectError {
    let mut fake = Fake::start(head, |_| Answer::Status(202)).await;
    if !said.is_empty() {
        fake.says(said).await;
    }
    let within = match ends {
        Ends::Stays => Duration::from_secs(1),
        Ends::Ends => {
            fake.say = tokio::sync::mpsc::channel(1).0;
            PATIENCE
        }
    };
    fake.connect(within).await.map(|_| ()).unwrap_err()
}

#[derive(Clone, Copy)]
enum Ends {
    Ends,
    Stays,
}

#[tokio::test]
async fn another_kind_of_server_is_not_an_unavailable_one() {
    for (head, is_away) in [
        ((404, EVENTS), false),
        ((405, EVENTS), false),
        ((401, EVENTS), false),
        ((307, EVENTS), false),
        ((429, EVENTS), true),
        ((503, EVENTS), true),
    ] {
        let refused = refusal(head, "", Ends::Ends).await;
        assert!(matches!(&refused, ConnectError::Status(status) if *status == head.0));
        assert_eq!(refused.should_try_another_instance(), is_away, "{refused}");
    }
    let refused = refusal((200, "application/json"), "{}", Ends::Ends).await;
    assert!(matches!(refused, ConnectError::NotEvents) && !refused.should_try_another_instance());
}

#[tokio::test]
async fn a_stream_without_an_endpoint_is_refused() {
    let said = ": hello\n\nretry: 10\n\nevent: endpoint\ndata: /messages";
    let refused = refusal((200, EVENTS), said, Ends::Stays).await;
    assert!(matches!(refused, ConnectError::NoEndpoint(_)), "{refused}");
    let refused = refusal((200, EVENTS), said, Ends::Ends).await;
    assert!(matches!(refused, ConnectError::Stream(_)), "{refused}");
    let long = "x".repeat(2 * EVENT_BYTES_MAX);
    for end in ["", "\n\n"] {
        let said = format!("event: endpoint\ndata: /{long}{end}");
        let refused = refusal((200, EVENTS), &said, Ends::Stays).await;
        assert!(matches!(refused, ConnectError::NoEndpoint(_)), "{refused}");
    }
}

#[tokio::test]
async fn messages_and_credentials_stay_at_the_servers_origin() {
    for endpoint in [
        "http://127.0.0.1:1/m",
        "//example.org/m",
        "https://example.org/m",
    ] {
        let said = format!("event: endpoint\ndata: {endpoint}\n\n");
        let refused = refusal((200, EVENTS), &said, Ends::Stays).await;
        assert!(
            matches!(refused, ConnectError::Endpoint(_)) && !refused.should_try_another_instance()
        );
    }
}

#[tokio::test]
async fn a_refused_connection_fails_at_once() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let refused = connect_to(&instance(&format!("http://{address}/sse")), PATIENCE).await;
    let refused = refused.map(|_| ()).unwrap_err();
    assert!(refused.should_try_another_instance() && matches!(refused, ConnectError::Send(_)));
}

#[tokio::test]
async fn a_server_that_never_answers_times_out() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let instance = instance(&format!("http://{address}/sse"));
    let refused = connect_to(&instance, Duration::from_millis(200)).await;
    assert!(matches!(refused, Err(ConnectError::NoEndpoint(_))));
}
