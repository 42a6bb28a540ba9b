//! The client against servers of raw bytes, and against the client of hyper, which reads the same responses.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]

mod connections;
mod floods;
mod own_answers;
mod responses;
mod shifted;
mod silent_hosts;

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http_body_util::BodyExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::*;

/// How long a test waits for what should happen at once.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long idle connections are kept, where a test does not wait for that.
const IDLE_MAX: Duration = Duration::from_secs(60);

fn client(idle_max: Duration) -> HttpClient {
    let silence = SilenceLimits {
        usual: Duration::from_secs(1),
        large_body: PATIENCE,
        probe_after: Duration::from_secs(1),
        probe_every: Duration::from_secs(1),
    };
    let options = HttpClientOptions {
        connect_timeout: PATIENCE,
        idle_connection: idle_max,
        silence,
        event_bytes_max: 1024,
    };
    HttpClient::new(options, tls_config(false).unwrap())
}

/// A server that treats each connection as `serve` does, and counts them.
struct RawServer {
    address: SocketAddr,
    accepted: Arc<AtomicUsize>,
}

impl RawServer {
    async fn start<F: Future<Output = ()> + Send>(
        serve: impl Fn(TcpStream) -> F + Send + Sync + Clone + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Self {
            address: listener.local_addr().unwrap(),
            accepted: Arc::default(),
        };
        let accepted = Arc::clone(&server.accepted);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                stream.set_nodelay(true).unwrap();
                accepted.fetch_add(1, Ordering::Relaxed);
                let serve = serve.clone();
                tokio::spawn(async move { serve(stream).await });
            }
        });
        server
    }

    fn accepted(&self) -> usize {
        self.accepted.load(Ordering::Relaxed)
    }

    fn post(&self, body: impl Into<Bytes>) -> Request<Bytes> {
        let uri = format!("http://{}/mcp?a=b", self.address);
        Request::post(uri).body(body.into()).unwrap()
    }
}

/// Reads a request, and returns its head and its body.
async fn read_request(stream: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let head = read_head(stream).await?;
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "))
        .map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    Some((head, body))
}

async fn read_head(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    Some(String::from_utf8(head).unwrap())
}

/// The status and the body of a response.
async fn read_whole(response: Response<ResponseBody>) -> Result<(u16, Bytes), RoundTripError> {
    let status = response.status().as_u16();
    let body = response.into_body().collect().await?.to_bytes();
    Ok((status, body))
}

/// Sends a request that must be answered whole.
async fn exchange(client: &HttpClient, request: &Request<Bytes>) -> (u16, Bytes) {
    let sent = client.send(request.into(), ConnectionChoice::Pooled);
    let response = tokio::time::timeout(PATIENCE, sent).await.unwrap().unwrap();
    read_whole(response).await.unwrap()
}

/// Waits until this is so.
async fn until(is_so: impl Fn() -> bool) {
    let waiting = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap();
}
