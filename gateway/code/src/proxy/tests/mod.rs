//! The proxy over real sockets: a listener of this machine in place of one inside a sandbox, and a server behind it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod addresses;
mod forwarding;
mod refusals;
mod tunnels;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Mutex;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;

/// A proxy, and where it listens.
struct Rig {
    proxy: Proxy,
    address: SocketAddr,
}

impl Rig {
    fn new(policy: AddressPolicy) -> Self {
        Self::with(policy, 16)
    }

    fn with(policy: AddressPolicy, connections_max: u32) -> Self {
        let (proxy, take) = Proxy::prepare(Arc::new(policy), connections_max);
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        take(listener.into());
        Self { proxy, address }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Everything that is answered to these bytes, to the end of the connection.
    async fn ask(&self, request: &str) -> String {
        let mut stream = self.connect().await;
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        String::from_utf8(answer).unwrap()
    }
}

/// The head of an answer, up to its empty line.
async fn head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

/// A server that keeps the head of each request, and answers with `answer`.
struct Origin {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Origin {
    async fn start(answer: &'static str) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let keep = Arc::clone(&asked);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let head = head(&mut stream).await;
                keep.lock().unwrap().push(head);
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        Self { address, asked }
    }

    fn policy(&self) -> AddressPolicy {
        AddressPolicy::allowing([self.address])
    }
}

/// A server that sends back what it gets.
async fn echo() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut reader, mut writer) = stream.split();
                // Either side may go first.
                let _ = tokio::io::copy(&mut reader, &mut writer).await;
            });
        }
    });
    address
}
