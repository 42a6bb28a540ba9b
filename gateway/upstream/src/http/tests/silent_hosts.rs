//! A host that vanishes: it acknowledges nothing any more, and refuses nothing.

use socket2::{SockFilter, SockRef};
use tokio::sync::mpsc;

use super::*;

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// Lets the kernel drop all that arrives for this socket before it is acknowledged.
fn vanish(stream: &TcpStream) {
    const RETURN: u16 = 0x06;
    let drop_all = [SockFilter::new(RETURN, 0, 0, 0)];
    SockRef::from(stream).attach_filter(&drop_all).unwrap();
}

/// A server that answers this many requests of each connection, reads one more if it is to be in flight, and vanishes.
async fn vanishing(answered: usize, is_in_flight: bool) -> (RawServer, mpsc::Receiver<()>) {
    let (sender, vanished) = mpsc::channel(1);
    let server = RawServer::start(move |mut stream| {
        let sender = sender.clone();
        async move {
            for _ in 0..answered {
                read_request(&mut stream).await.unwrap();
                stream.write_all(ANSWER).await.unwrap();
            }
            if is_in_flight {
                read_request(&mut stream).await.unwrap();
            }
            vanish(&stream);
            sender.send(()).await.unwrap();
            std::future::pending::<()>().await;
        }
    })
    .await;
    (server, vanished)
}

async fn fails_as_silent(client: &HttpClient, request: &Request<Bytes>) {
    let sent = client.send(request.into(), ConnectionChoice::Pooled);
    let error = tokio::time::timeout(PATIENCE, sent).await.unwrap();
    assert!(
        matches!(error, Err(HttpError::RoundTrip(RoundTripError::HostSilent))),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_request_over_a_warm_connection_to_a_vanished_host_ends() {
    let (server, mut vanished) = vanishing(1, false).await;
    let client = client(IDLE_MAX);
    exchange(&client, &server.post("{}")).await;
    vanished.recv().await.unwrap();
    fails_as_silent(&client, &server.post("{}")).await;
    assert_eq!(server.accepted(), 1);
}

#[tokio::test]
async fn a_request_in_flight_at_a_host_that_vanishes_ends() {
    let (server, _vanished) = vanishing(0, true).await;
    fails_as_silent(&client(IDLE_MAX), &server.post("{}")).await;
}

#[tokio::test]
async fn a_reply_of_a_host_that_vanishes_ends() {
    let server = RawServer::start(async |mut stream| {
        read_request(&mut stream).await.unwrap();
        let begun = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok";
        stream.write_all(begun).await.unwrap();
        vanish(&stream);
        std::future::pending::<()>().await;
    })
    .await;
    let request = server.post("{}");
    let client = client(IDLE_MAX);
    let sent = client.send((&request).into(), ConnectionChoice::Pooled);
    let reading = async { read_whole(sent.await.unwrap()).await };
    let read = tokio::time::timeout(PATIENCE, reading).await.unwrap();
    assert!(matches!(read, Err(RoundTripError::HostSilent)), "{read:?}");
}

/// Whether it falls silent before a reply or within one.
#[tokio::test]
async fn idle_connections_to_a_host_that_vanished_are_not_used() {
    for begun in ["", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok"] {
        let both = Arc::new(tokio::sync::Barrier::new(2));
        let server = RawServer::start(move |mut stream| {
            let both = Arc::clone(&both);
            async move {
                while let Some((_, body)) = read_request(&mut stream).await {
                    match body.as_slice() {
                        b"both" => _ = both.wait().await,
                        b"vanish" => {
                            stream.write_all(begun.as_bytes()).await.unwrap();
                            vanish(&stream);
                            std::future::pending::<()>().await;
                        }
                        _ => {}
                    }
                    stream.write_all(ANSWER).await.unwrap();
                }
            }
        })
        .await;
        let client = client(IDLE_MAX);
        let warm = server.post("both");
        tokio::join!(exchange(&client, &warm), exchange(&client, &warm));
        let request = server.post("vanish");
        let silent = async {
            let sent = client
                .send((&request).into(), ConnectionChoice::Pooled)
                .await;
            match sent {
                Ok(response) => read_whole(response).await.unwrap_err(),
                Err(HttpError::RoundTrip(error)) => error,
                Err(error) => panic!("{error:?}"),
            }
        };
        let error = tokio::time::timeout(PATIENCE, silent).await.unwrap();
        assert!(matches!(error, RoundTripError::HostSilent), "{error:?}");
        assert_eq!(server.accepted(), 2);
        exchange(&client, &server.post("{}")).await;
        assert_eq!(server.accepted(), 3, "{begun:?}");
    }
}

/// Its host acknowledges what fits, and then that nothing does.
#[tokio::test]
async fn a_server_that_reads_a_large_request_late_is_waited_for() {
    const LENGTH: usize = 20_000_000;
    /// Several times as long as a silent host is waited for.
    const BUSY: Duration = Duration::from_secs(4);
    let server = RawServer::start(async |mut stream| {
        read_head(&mut stream).await.unwrap();
        tokio::time::sleep(BUSY).await;
        let mut rest = vec![0; LENGTH];
        stream.read_exact(&mut rest).await.unwrap();
        stream.write_all(ANSWER).await.unwrap();
        // The next request over it is a small one.
        read_request(&mut stream).await.unwrap();
        stream.write_all(ANSWER).await.unwrap();
        vanish(&stream);
        std::future::pending::<()>().await;
    })
    .await;
    let client = client(IDLE_MAX);
    let request = server.post(vec![b'x'; LENGTH]);
    assert_eq!(exchange(&client, &request).await, (200, "ok".into()));
    exchange(&client, &server.post("{}")).await;
    fails_as_silent(&client, &server.post("{}")).await;
    assert_eq!(server.accepted(), 1);
}
