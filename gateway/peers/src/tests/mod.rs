//! Gateways that ask each other over loopback, and whoever stands in between.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]

mod between;
mod forwarding;
mod refusing;

use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::Incoming;
use mooring_session::names::{Principal, ServerName, WorkerId};
use strum::VariantArray as _;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{
    FiguresError, Forward, ListenerOptions, Operation, PeerClient, PeerError, PeerService,
    ReplyAbandoned, Verdict, listen,
};
use crate::fleet::{FleetTls, KeyRing};

/// Longest wait for what has to come.
const PATIENCE: Duration = Duration::from_secs(30);
const BODY_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Most requests that a test has not looked at yet.
const ASKED_MAX: usize = 16;
/// The fleet's key.
const KEY: &[u8] = b"the fleet's key";

type Piece = Result<Bytes, io::Error>;
/// The connection's side of one reply: what it sends streams, and `closed` tells that nobody listens.
type Events = mpsc::Sender<Piece>;

/// What a test's gateway does, by the message that it gets.
struct Scripted {
    calls: AtomicUsize,
    streams: mpsc::Sender<Events>,
    asked: mpsc::Sender<Forward>,
}

impl PeerService for Scripted {
    type Body = UnsyncBoxBody<Bytes, io::Error>;

    async fn serve(&self, forward: Forward) -> Result<Response<Self::Body>, Verdict> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        // A test that does not look at them lets them fill the channel.
        let _ = self.asked.try_send(forward.clone());
        let (events, mut pieces) = mpsc::channel::<Piece>(4);
        match &forward.body[..] {
            b"stream" => self.streams.send(events).await.unwrap(),
            b"never" => {
                // The stream is dropped with this future.
                self.streams.send(events).await.unwrap();
                return std::future::pending().await;
            }
            word => match Verdict::VARIANTS
                .iter()
                .find(|verdict| <&str>::from(*verdict).as_bytes() == word)
            {
                Some(verdict) => return Err(*verdict),
                None => events.send(Ok(forward.body.clone())).await.unwrap(),
            },
        }
        let pieces = stream::poll_fn(move |context| pieces.poll_recv(context));
        let frames = futures_util::StreamExt::map(pieces, |piece| piece.map(Frame::data));
        let mut reply = Response::new(StreamBody::new(frames).boxed_unsync());
        *reply.status_mut() = StatusCode::ACCEPTED;
        let epoch = HeaderValue::from(forward.epoch);
        reply.headers_mut().insert("mooring-epoch", epoch);
        Ok(reply)
    }

    fn figures(&self, question: &[u8]) -> Option<Bytes> {
        match question {
            b"many" => Some(Bytes::from(vec![b'1'; 2 * 1024 * 1024])),
            b"unknown" => None,
            question => Some(Bytes::copy_from_slice(question)),
        }
    }
}

/// A gateway that serves others.
struct Gateway {
    id: WorkerId,
    address: SocketAddr,
    service: Arc<Scripted>,
    streams: mpsc::Receiver<Events>,
    asked: mpsc::Receiver<Forward>,
    stopping: CancellationToken,
    serving: JoinHandle<()>,
}

impl Gateway {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, streams) = mpsc::channel(4);
        let (asked_sender, asked) = mpsc::channel(ASKED_MAX);
        let service = Arc::new(Scripted {
            calls: AtomicUsize::new(0),
            streams: sender,
            asked: asked_sender,
        });
        let stopping = CancellationToken::new();
        let options = ListenerOptions {
            body_bytes_max: BODY_BYTES_MAX,
        };
        let (serving, stopped) = (Arc::clone(&service), stopping.clone());
        let serving = tokio::spawn(async move {
            listen(listener, &tls("b:1", &[KEY]), serving, options, stopped).await;
        });
        Self {
            id: worker("b:1"),
            address,
            service,
            streams,
            asked,
            stopping,
            serving,
        }
    }

    fn calls(&self) -> usize {
        self.service.calls.load(Ordering::Relaxed)
    }

    async fn next_stream(&mut self) -> Events {
        within(self.streams.recv()).await.unwrap()
    }
}

fn worker(id: &str) -> WorkerId {
    WorkerId::parse(id.as_bytes()).unwrap()
}

fn tls(id: &str, keys: &[&[u8]]) -> FleetTls {
    FleetTls::new(&worker(id), &KeyRing::of(keys)).unwrap()
}

/// Asks as gateway `a`.
fn client() -> PeerClient {
    PeerClient::new(&tls("a:1", &[KEY]))
}

fn asking(message: impl Into<Bytes>) -> Forward {
    Forward {
        operation: Operation::Serve,
        session_key: "mcpgw:session_affinity:0123".into(),
        principal: Principal::parse(b"zoe").unwrap(),
        server: ServerName::parse(b"files").unwrap(),
        epoch: 7,
        method: Method::POST,
        headers: HeaderMap::new(),
        body: message.into(),
    }
}

/// Sends a message, and waits for the head of the reply.
async fn send(
    client: &PeerClient,
    to: &WorkerId,
    address: impl ToString,
    message: impl Into<Bytes>,
) -> Result<Response<Incoming>, PeerError> {
    let (address, forward) = (address.to_string(), asking(message));
    within(client.send(to, &address, &forward, pending())).await
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future)
        .await
        .unwrap_or_else(|_| panic!("nothing within {PATIENCE:?}"))
}
