//! `CONNECT`, how many there may be, and their end.

use std::task::Poll;

use super::*;

async fn tunnel(rig: &Rig, to: SocketAddr) -> TcpStream {
    let mut stream = rig.connect().await;
    let request = format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

async fn round(stream: &mut TcpStream, text: &[u8]) {
    stream.write_all(text).await.unwrap();
    let mut back = vec![0; text.len()];
    stream.read_exact(&mut back).await.unwrap();
    assert_eq!(back, text);
}

#[tokio::test]
async fn bytes_go_both_ways() {
    let to = echo().await;
    let rig = Rig::new(AddressPolicy::allowing([to]));
    let mut stream = tunnel(&rig, to).await;
    assert!(head(&mut stream).await.starts_with("HTTP/1.1 200 "));
    round(&mut stream, b"anything at all").await;
    round(&mut stream, &[7; 10_000]).await;
    stream.shutdown().await.unwrap();
    assert_eq!(stream.read_to_end(&mut Vec::new()).await.unwrap(), 0);
    let traffic = rig.proxy.end().await;
    let expected = Traffic {
        connections: 1,
        refused: Vec::new(),
    };
    assert_eq!(traffic, expected);
}

#[tokio::test]
async fn more_than_there_may_be_wait() {
    let to = echo().await;
    let rig = Rig::with(AddressPolicy::allowing([to]), 1);
    let mut first = tunnel(&rig, to).await;
    head(&mut first).await;
    let mut second = tunnel(&rig, to).await;
    round(&mut first, b"goes on").await;
    let mut reading = Box::pin(head(&mut second));
    let is_waiting =
        std::future::poll_fn(|context| Poll::Ready(reading.as_mut().poll(context).is_pending()));
    assert!(is_waiting.await);
    drop(first);
    assert!(reading.await.starts_with("HTTP/1.1 200 "));
    assert_eq!(rig.proxy.end().await.connections, 2);
}

#[tokio::test]
async fn the_end_closes_everything() {
    let to = echo().await;
    let rig = Rig::new(AddressPolicy::allowing([to]));
    let mut stream = tunnel(&rig, to).await;
    head(&mut stream).await;
    let waiting = rig.connect().await;
    let (proxy, address) = (rig.proxy, rig.address);
    assert_eq!(proxy.end().await.connections, 1);
    for mut open in [stream, waiting] {
        let read = open.read(&mut [0; 10]).await;
        assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
    }
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn a_proxy_that_was_given_nothing_ends() {
    let (proxy, take) = Proxy::prepare(Arc::default(), 1);
    assert_eq!(proxy.end().await, Traffic::default());
    // And what it is given later is closed.
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    take(listener.into());
    assert!(TcpStream::connect(address).await.is_err());
    let (proxy, take) = Proxy::prepare(Arc::default(), 1);
    drop(take);
    assert_eq!(proxy.end().await, Traffic::default());
}
