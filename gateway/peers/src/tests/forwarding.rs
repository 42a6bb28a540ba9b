//! What is asked is done, and its reply comes as it is made.

use std::io;

use http_body_util::BodyExt;
use tokio::net::TcpStream;

use super::*;

async fn next(body: &mut Incoming) -> Option<Bytes> {
    let frame = within(body.frame()).await?;
    Some(frame.unwrap().into_data().unwrap())
}

async fn ask(gateway: &Gateway, client: &PeerClient, message: &str) -> Response<Incoming> {
    let message = message.to_owned();
    send(client, &gateway.id, gateway.address, message)
        .await
        .unwrap()
}

#[tokio::test]
async fn a_reply_streams_event_by_event() {
    let mut gateway = Gateway::start().await;
    let reply = ask(&gateway, &client(), "stream").await;
    assert_eq!(reply.status(), StatusCode::ACCEPTED);
    assert_eq!(reply.headers()["mooring-epoch"], "7");
    let events = gateway.next_stream().await;
    let mut body = reply.into_body();
    for number in 0..20 {
        // The next one is only made when this one has arrived, so nothing holds one back for another.
        let event = Bytes::from(format!("data: {number}\n\n"));
        events.send(Ok(event.clone())).await.unwrap();
        assert_eq!(next(&mut body).await, Some(event));
    }
    drop(events);
    assert_eq!(next(&mut body).await, None);
}

#[tokio::test]
async fn large_messages_and_replies_arrive_whole() {
    let gateway = Gateway::start().await;
    let message: Bytes = (0..8 * 1024 * 1024_u32).map(|n| (n % 251) as u8).collect();
    let reply = send(&client(), &gateway.id, gateway.address, message.clone()).await;
    let body = reply.unwrap().into_body();
    let reply = within(body.collect()).await.unwrap().to_bytes();
    assert!(reply == message);
}

#[tokio::test]
async fn every_verdict_says_that_nothing_was_delivered() {
    let gateway = Gateway::start().await;
    let client = client();
    for &verdict in Verdict::VARIANTS {
        let word: &str = verdict.into();
        let sent = send(&client, &gateway.id, gateway.address, word).await;
        let error = sent.unwrap_err();
        assert!(error.is_undelivered(), "{error}");
        assert!(matches!(error, PeerError::Verdict(told) if told == verdict));
    }
}

#[tokio::test]
async fn what_is_asked_arrives_as_it_was_asked() {
    let mut gateway = Gateway::start().await;
    let (client, address) = (client(), gateway.address.to_string());
    for operation in Operation::ALL {
        for (method, body) in [
            (Method::POST, "{}"),
            (Method::GET, ""),
            (Method::DELETE, ""),
        ] {
            let mut forward = asking(body);
            forward.operation = operation;
            forward.method = method;
            forward.principal = Principal::parse(" Zo\u{eb} Example, x=y; ".as_bytes()).unwrap();
            forward.session_key = "a prefix:\u{eb}: ".into();
            forward.epoch = u64::MAX;
            let value = HeaderValue::from_bytes(b"caf\xe9").unwrap();
            forward.headers.insert("mcp-param-a", value);
            (forward.headers).append("mcp-param-a", HeaderValue::from_static("b"));
            let reply = within(client.send(&gateway.id, &address, &forward, pending())).await;
            let reply = reply.unwrap();
            let names: Vec<_> = reply.headers().keys().map(|name| name.as_str()).collect();
            assert_eq!(names, ["mooring-epoch"], "nothing of the hop is left");
            within(reply.into_body().collect()).await.unwrap();
            assert_eq!(within(gateway.asked.recv()).await, Some(forward));
        }
    }
}

#[tokio::test]
async fn a_gateway_answers_for_its_figures_within_bounds() {
    let gateway = Gateway::start().await;
    let (client, address) = (client(), gateway.address.to_string());
    let ask = async |question: &str| {
        let question = Bytes::copy_from_slice(question.as_bytes());
        within(client.ask_figures(&gateway.id, &address, question)).await
    };
    assert_eq!(ask("which?").await.unwrap(), "which?");
    let unknown = ask("unknown").await.unwrap_err();
    assert!(matches!(
        unknown,
        FiguresError::Unanswered(PeerError::Verdict(Verdict::Unsupported))
    ));
    let large = ask("many").await.unwrap_err();
    assert!(matches!(large, FiguresError::Incomplete), "{large}");
    let long = ask(&"x".repeat(2048)).await.unwrap_err();
    assert!(matches!(long, FiguresError::Unanswered(_)), "{long}");
    assert_eq!(gateway.calls(), 0, "no session was concerned");
}

#[test]
fn nothing_shows_a_secret() {
    let shown = format!("{:?} {:?}", asking("the message"), client());
    for secret in ["0123", "zoe", "the message"] {
        assert!(!shown.contains(secret), "{shown}");
    }
}

#[tokio::test]
async fn a_reply_that_nobody_reads_any_more_is_noticed() {
    let mut gateway = Gateway::start().await;
    let reply = ask(&gateway, &client(), "stream").await;
    let events = gateway.next_stream().await;
    assert!(!events.is_closed());
    drop(reply);
    within(events.closed()).await;
}

#[tokio::test]
async fn a_request_that_nobody_waits_for_any_more_is_noticed() {
    let mut gateway = Gateway::start().await;
    let (client, forward) = (client(), asking("never"));
    let (to, address) = (gateway.id.clone(), gateway.address.to_string());
    let sending =
        tokio::spawn(async move { client.send(&to, &address, &forward, pending()).await });
    let events = gateway.next_stream().await;
    sending.abort();
    within(events.closed()).await;
}

#[tokio::test]
async fn a_reply_that_is_not_waited_for_any_more_may_have_been_delivered() {
    let mut gateway = Gateway::start().await;
    let (forward, address) = (asking("never"), gateway.address.to_string());
    let (client, to) = (client(), gateway.id.clone());
    let given_up = async {
        gateway.next_stream().await;
        ReplyAbandoned::CountedDead
    };
    let sent = client.send(&to, &address, &forward, given_up);
    let error = within(sent).await.unwrap_err();
    assert!(matches!(error, PeerError::Unanswered(_)) && !error.is_undelivered());
}

#[tokio::test]
async fn what_was_never_connected_was_not_delivered() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let mut accepted = None;
    let given_up = async {
        // The handshake is never answered.
        accepted = Some(listener.accept().await.unwrap());
        ReplyAbandoned::CountedDead
    };
    let (client, forward, to) = (client(), asking("x"), worker("b:1"));
    let sent = client.send(&to, &address, &forward, given_up);
    let error = within(sent).await.unwrap_err();
    assert!(matches!(error, PeerError::Unconnected(_)) && error.is_undelivered());
    assert!(accepted.is_some());
}

#[tokio::test]
async fn connections_are_used_again() {
    const FORWARDS: usize = 100;
    let gateway = Gateway::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, target) = (listener.local_addr().unwrap(), gateway.address);
    let accepted = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&accepted);
    let relaying = tokio::spawn(async move {
        loop {
            let (mut near, _) = listener.accept().await.unwrap();
            counted.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(async move {
                let mut far = TcpStream::connect(target).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
            });
        }
    });
    let client = client();
    for number in 0..FORWARDS {
        let message = if number % 2 == 0 { "not_here" } else { "x" };
        if let Ok(reply) = send(&client, &gateway.id, address, message).await {
            within(reply.into_body().collect()).await.unwrap();
        }
    }
    assert_eq!(gateway.calls(), FORWARDS);
    // One may not be back yet when the next request needs it.
    let connections = accepted.load(Ordering::Relaxed);
    assert!(connections < FORWARDS / 4, "{connections}");
    relaying.abort();
}

#[tokio::test]
async fn a_reply_that_breaks_where_it_comes_from_is_not_whole() {
    let mut gateway = Gateway::start().await;
    let client = client();
    let mut body = ask(&gateway, &client, "stream").await.into_body();
    let events = gateway.next_stream().await;
    events.send(Ok("some".into())).await.unwrap();
    assert_eq!(next(&mut body).await, Some("some".into()));
    events
        .send(Err(io::ErrorKind::BrokenPipe.into()))
        .await
        .unwrap();
    assert!(within(body.frame()).await.unwrap().is_err());
    assert!(within(body.frame()).await.is_none());
}

#[tokio::test]
async fn a_gateway_that_is_cut_off_leaves_no_whole_reply() {
    let mut gateway = Gateway::start().await;
    let mut body = ask(&gateway, &client(), "stream").await.into_body();
    let events = gateway.next_stream().await;
    events.send(Ok("some".into())).await.unwrap();
    assert_eq!(next(&mut body).await, Some("some".into()));
    gateway.serving.abort();
    assert!(within(body.frame()).await.unwrap().is_err());
}

#[tokio::test]
async fn a_thousand_forwards_one_after_another() {
    let gateway = Gateway::start().await;
    let client = client();
    for number in 0..1000 {
        let message = number.to_string();
        let body = ask(&gateway, &client, &message).await.into_body();
        assert_eq!(body.collect().await.unwrap().to_bytes(), message);
    }
    assert_eq!(gateway.calls(), 1000);
}

#[tokio::test]
async fn many_forwards_at_a_time() {
    let gateway = Arc::new(Gateway::start().await);
    let client = client();
    let asking: Vec<_> = (0..64)
        .map(|number| {
            let (gateway, client) = (Arc::clone(&gateway), client.clone());
            tokio::spawn(async move {
                for round in 0..8 {
                    let message = format!("{number} {round}");
                    let body = ask(&gateway, &client, &message).await.into_body();
                    assert_eq!(body.collect().await.unwrap().to_bytes(), message);
                }
            })
        })
        .collect();
    for one in asking {
        within(one).await.unwrap();
    }
    assert_eq!(gateway.calls(), 64 * 8);
}

#[tokio::test]
async fn what_stops_ends_its_open_replies_first() {
    let mut gateway = Gateway::start().await;
    let client = client();
    let mut body = ask(&gateway, &client, "stream").await.into_body();
    let events = gateway.next_stream().await;
    gateway.stopping.cancel();
    // Whoever asks now is refused, at the latest when the listener is closed.
    while send(&client, &gateway.id, gateway.address, "x")
        .await
        .is_ok()
    {
        tokio::task::yield_now().await;
    }
    events.send(Ok("last".into())).await.unwrap();
    assert_eq!(next(&mut body).await, Some("last".into()));
    assert!(!gateway.serving.is_finished());
    drop(events);
    assert_eq!(next(&mut body).await, None);
    within(&mut gateway.serving).await.unwrap();
}
