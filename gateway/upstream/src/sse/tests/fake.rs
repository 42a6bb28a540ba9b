//! A server on its own port that sends and answers what a test wants.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use axum::routing::{get, post};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode};
use mooring_session::names::InstanceName;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::connection::link::{Link, LinkEnd};
use crate::sse::{ConnectError, connect};
use crate::{Client, HttpClient, HttpClientOptions, Instance, SilenceLimits, tls_config};

/// Longer than any step takes.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);
/// The longest event of a test's link, in bytes.
pub(super) const EVENT_BYTES_MAX: usize = 4096;
/// The first event of a server.
pub(super) const ENDPOINT: &str = "event: endpoint\ndata: /messages?sessionId=7\n\n";
/// The header that every request must carry.
const SECRET: HeaderValue = HeaderValue::from_static("Bearer of-the-server");

/// The response to a POST.
#[derive(Clone, Copy, Debug)]
pub(super) enum Answer {
    Status(u16),
    /// After a delay.
    Slowly(Duration),
    /// Never.
    Never,
    /// The connection breaks.
    Break,
}

pub(super) struct Fake {
    pub(super) instance: Arc<Instance>,
    /// The bytes of the stream, which ends when this is dropped.
    pub(super) say: mpsc::Sender<Bytes>,
    /// What was POSTed, in the order of arrival.
    pub(super) posted: mpsc::Receiver<String>,
}

struct Shared {
    head: (u16, &'static str),
    /// Taken by the GET of the stream.
    said: Mutex<Option<mpsc::Receiver<Bytes>>>,
    posts: mpsc::Sender<String>,
    answer: fn(&str) -> Answer,
}

impl Fake {
    /// A server that answers the GET with `head` (status and content type) and each POST as `answer` says.
    pub(super) async fn start(head: (u16, &'static str), answer: fn(&str) -> Answer) -> Self {
        let (say, said) = mpsc::channel(1024);
        let (posts, posted) = mpsc::channel(1024);
        let shared = Arc::new(Shared {
            head,
            said: Mutex::new(Some(said)),
            posts,
            answer,
        });
        let routes = Router::new()
            .route("/sse", get(stream))
            .route("/messages", post(message))
            .with_state(shared);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
        Self {
            instance: instance(&format!("http://{address}/sse")),
            say,
            posted,
        }
    }

    /// A server that conforms to the protocol.
    pub(super) async fn accepting() -> Self {
        Self::answering(|_| Answer::Status(202)).await
    }

    /// A server with a conforming stream.
    pub(super) async fn answering(answer: fn(&str) -> Answer) -> Self {
        let fake = Self::start((200, "text/event-stream"), answer).await;
        fake.says(ENDPOINT).await;
        fake
    }

    pub(super) async fn says(&self, text: &str) {
        let text = Bytes::copy_from_slice(text.as_bytes());
        self.say.send(text).await.unwrap();
    }

    pub(super) async fn connected(&self) -> Link {
        self.connect(PATIENCE).await.unwrap()
    }

    pub(super) async fn connect(&self, endpoint_within: Duration) -> Result<Link, ConnectError> {
        connect_to(&self.instance, endpoint_within).await
    }

    pub(super) async fn next_posted(&mut self) -> String {
        let posted = tokio::time::timeout(PATIENCE, self.posted.recv()).await;
        posted.unwrap().unwrap()
    }
}

pub(super) async fn connect_to(
    instance: &Arc<Instance>,
    endpoint_within: Duration,
) -> Result<Link, ConnectError> {
    let options = HttpClientOptions {
        connect_timeout: PATIENCE,
        idle_connection: Duration::from_secs(1),
        silence: SilenceLimits::default(),
        event_bytes_max: EVENT_BYTES_MAX,
    };
    let http = HttpClient::new(options, tls_config(false).unwrap());
    let client = Client::new(http, Duration::ZERO);
    let headers = HeaderMap::from_iter([(http::header::AUTHORIZATION, SECRET)]);
    connect(&client, instance, &headers, endpoint_within).await
}

pub(super) fn instance(url: &str) -> Arc<Instance> {
    let name = InstanceName::parse(url.as_bytes()).unwrap();
    Arc::new(Instance::new(name, url.parse().unwrap()))
}

pub(super) async fn send(link: &Link, message: &str) {
    let message = Bytes::copy_from_slice(message.as_bytes());
    link.to_server.send(message).await.unwrap();
}

/// The next message of the server; `None` when the link is down.
pub(super) async fn next_message(link: &mut Link) -> Option<String> {
    let heard = tokio::time::timeout(PATIENCE, link.from_server.recv()).await;
    let text = heard.unwrap()?;
    Some(String::from_utf8(text.to_vec()).unwrap())
}

/// Why the link is down, after all messages were read.
pub(super) async fn ended(link: &mut Link) -> LinkEnd {
    assert_eq!(next_message(link).await, None);
    let end = link.end.borrow().clone();
    let gone = tokio::time::timeout(PATIENCE, link.gone.cancelled()).await;
    gone.unwrap();
    end.unwrap()
}

async fn stream(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Response {
    assert_eq!(headers["accept"], "text/event-stream");
    assert_eq!(headers["authorization"], SECRET);
    let (status, content_type) = shared.head;
    let said = shared.said.lock().unwrap().take().unwrap();
    let bytes = futures_util::stream::unfold(said, |mut said| async move {
        let bytes = said.recv().await?;
        Some((Ok::<_, std::io::Error>(bytes), said))
    });
    Response::builder()
        .status(status)
        .header("content-type", content_type)
        .body(Body::from_stream(bytes))
        .unwrap()
}

async fn message(
    State(shared): State<Arc<Shared>>,
    uri: http::Uri,
    headers: HeaderMap,
    body: String,
) -> StatusCode {
    assert_eq!(uri.query(), Some("sessionId=7"));
    assert_eq!(headers["content-type"], "application/json");
    assert_eq!(headers["authorization"], SECRET);
    let answer = (shared.answer)(&body);
    if let Answer::Slowly(pause) = answer {
        tokio::time::sleep(pause).await;
    }
    shared.posts.send(body).await.unwrap();
    match answer {
        Answer::Status(status) => StatusCode::from_u16(status).unwrap(),
        Answer::Slowly(_) => StatusCode::ACCEPTED,
        Answer::Never => std::future::pending().await,
        Answer::Break => panic!("the test wants this connection to break"),
    }
}
