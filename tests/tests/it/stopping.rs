//! A gateway that is stopped loses no request of a client that keeps its connection: what was sent is answered, the reply
//! says that the connection is closed, and only idle connections are closed without one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use futures_util::future::try_join_all;
use http::{Request, header};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use mooring_tests::client::HttpClient;
use mooring_tests::fixture::Fixture;
use mooring_tests::gateway::Gateway;
use mooring_tests::nginx::Nginx;
use mooring_tests::session::McpSession;
use mooring_tests::wait;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::rig::{increment, kept, post_of, read_until};

/// Clients that call at the same time, each with a session and a connection of its own.
const CLIENTS: usize = 12;
/// Pauses of the clients between two calls: most have none, the others are between two requests when the gateway stops.
const PAUSES_MS: [u64; 4] = [0, 0, 3, 40];
/// Stops in the ordinary suite, and in the soak test.
const STOPS: usize = 20;
const STOPS_SOAK: usize = 1_000;
/// Calls that the clients make together between two stops, at least.
const CALLS_BETWEEN: u64 = 40;
/// Between two attempts to connect to a gateway that is not there.
const PAUSE: Duration = Duration::from_millis(5);
/// How long anything may take on a busy machine.
const SOON: Duration = Duration::from_secs(60);

/// What all clients share.
#[derive(Debug, Default)]
struct Progress {
    calls: AtomicU64,
    is_over: AtomicBool,
}

/// A client that keeps its connection until a reply says that it is closed.
struct KeptAlive {
    port: u16,
    session: McpSession,
    sender: Option<http1::SendRequest<Full<Bytes>>>,
    pause: Duration,
    count: u64,
}

impl KeptAlive {
    /// Calls until the end. Every call that was sent must be answered, by the next number.
    async fn run(mut self, progress: Arc<Progress>) -> anyhow::Result<u64> {
        while !progress.is_over.load(Ordering::Relaxed) {
            self.call().await?;
            progress.calls.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(self.pause).await;
        }
        Ok(self.count)
    }

    async fn call(&mut self) -> anyhow::Result<()> {
        let text = increment(&(self.count + 1).to_string());
        let answered = async {
            loop {
                let mut request = post_of(&mut self.session, text.clone())?.map(Full::new);
                in_origin_form(&mut request)?;
                if let Some(body) = self.attempt(request).await? {
                    return anyhow::Ok(body);
                }
                tokio::time::sleep(PAUSE).await;
            }
        };
        let answered = tokio::time::timeout(SOON, answered);
        let body = answered.await.context("no gateway takes the call")??;
        let counted = count_in(&body)?;
        ensure!(counted == self.count + 1, "{counted} after {}", self.count);
        self.count = counted;
        Ok(())
    }

    /// Sends a request over the kept connection; none if nothing was sent.
    async fn attempt(&mut self, request: Request<Full<Bytes>>) -> anyhow::Result<Option<Bytes>> {
        let open = self.sender.take().filter(|sender| !sender.is_closed());
        let mut sender = match open {
            Some(sender) => sender,
            None => match connect(self.port).await? {
                Some(sender) => sender,
                None => return Ok(None),
            },
        };
        let reply = match sender.send_request(request).await {
            // The connection was closed before the request was written.
            Err(error) if error.is_canceled() => return Ok(None),
            reply => reply.context("a request was lost")?,
        };
        if reply.status() == 502 {
            bail!("the load balancer lost a request");
        }
        ensure!(reply.status() == 200, "{reply:?}");
        let closes = reply.headers().get(header::CONNECTION);
        let closes = closes.is_some_and(|value| value == "close");
        let body = reply
            .into_body()
            .collect()
            .await
            .context("a reply was cut")?;
        self.sender = Some(sender).filter(|_| !closes);
        Ok(Some(body.to_bytes()))
    }
}

/// As a client of one server sends it: the path, and whom it is for in `Host`.
fn in_origin_form(request: &mut Request<Full<Bytes>>) -> anyhow::Result<()> {
    let authority = request.uri().authority().context("an authority")?;
    let host = header::HeaderValue::from_str(authority.as_str())?;
    request.headers_mut().insert(header::HOST, host);
    let path = request.uri().path().parse()?;
    *request.uri_mut() = path;
    Ok(())
}

/// A connection; none if nobody listens there.
async fn connect(port: u16) -> anyhow::Result<Option<http1::SendRequest<Full<Bytes>>>> {
    let stream = match TcpStream::connect(("127.0.0.1", port)).await {
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => return Ok(None),
        stream => stream.context("connect")?,
    };
    stream.set_nodelay(true)?;
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(Some(sender))
}

/// The count in a reply, which is JSON or the last event of a stream.
fn count_in(body: &[u8]) -> anyhow::Result<u64> {
    let text = String::from_utf8_lossy(body);
    let lines = text.lines().rev();
    let message = lines
        .map(|line| line.strip_prefix("data:").unwrap_or(line))
        .find_map(|line| serde_json::from_str::<Value>(line).ok())
        .with_context(|| format!("no message: {text}"))?;
    let count = message["result"]["structuredContent"]["count"].as_u64();
    count.with_context(|| format!("no count: {message}"))
}

async fn start_clients(
    port: u16,
    endpoint: &str,
    progress: &Arc<Progress>,
) -> anyhow::Result<Vec<JoinHandle<anyhow::Result<u64>>>> {
    let mut clients = Vec::new();
    for number in 0..CLIENTS {
        let session = McpSession::open(&HttpClient::default(), &[endpoint.to_owned()]).await?;
        let pause_ms = PAUSES_MS[number % PAUSES_MS.len()];
        let client = KeptAlive {
            port,
            session,
            sender: None,
            pause: Duration::from_millis(pause_ms),
            count: 0,
        };
        clients.push(tokio::spawn(client.run(Arc::clone(progress))));
    }
    Ok(clients)
}

/// Waits until the clients have made some more calls; fails at once where one has failed.
async fn some_more(
    progress: &Progress,
    clients: &[JoinHandle<anyhow::Result<u64>>],
) -> anyhow::Result<()> {
    let target = progress.calls.load(Ordering::Relaxed) + CALLS_BETWEEN;
    wait::until_true("more calls", SOON, async || {
        let is_over = clients.iter().any(JoinHandle::is_finished);
        Ok(is_over || progress.calls.load(Ordering::Relaxed) >= target)
    })
    .await
}

/// Stops and starts the gateways in turn while clients call at `port`; the calls in all.
async fn stop_under_load(
    gateways: &mut [Gateway],
    port: u16,
    endpoint: &str,
    stops: usize,
) -> anyhow::Result<u64> {
    let progress = Arc::new(Progress::default());
    let clients = start_clients(port, endpoint, &progress).await?;
    for number in 0..stops {
        some_more(&progress, &clients).await?;
        if clients.iter().any(JoinHandle::is_finished) {
            break;
        }
        let place = number % gateways.len();
        let gateway = &mut gateways[place];
        let status = gateway.process().terminate().await?;
        assert!(status.success(), "{status}");
        gateway.restart().await?;
    }
    progress.is_over.store(true, Ordering::Relaxed);
    let ended = try_join_all(clients).await?;
    let counts: Vec<u64> = ended.into_iter().collect::<anyhow::Result<_>>()?;
    Ok(counts.iter().sum())
}

/// Clients of one gateway, which wait until it is there again.
async fn stop_one(stops: usize) -> anyhow::Result<()> {
    let fixture = Fixture::start("one").await?;
    let mut gateways = [Gateway::start("stopping", kept(&[fixture.url()])).await?];
    let (port, endpoint) = (gateways[0].port(), gateways[0].mcp_url("tools"));
    let calls = stop_under_load(&mut gateways, port, &endpoint, stops).await?;
    assert_eq!(fixture.stats().await?.calls_of("increment"), calls);
    Ok(())
}

/// Clients of two gateways behind nginx, which tries the other one where a connection is refused, and sends no POST twice.
async fn stop_behind_nginx(stops: usize) -> anyhow::Result<()> {
    let fixture = Fixture::start("one").await?;
    let shared = tempfile::TempDir::new()?;
    let settings = kept(&[fixture.url()]).state_home(shared.path());
    let mut gateways = Gateway::fleet(2, &settings).await?;
    let ports: Vec<u16> = gateways.iter().map(Gateway::port).collect();
    let nginx = Nginx::start_trying_all(&ports).await?;
    let endpoint = nginx.url("/servers/tools/mcp");
    let uri: http::Uri = endpoint.parse()?;
    let port = uri.port_u16().context("a port")?;
    let calls = stop_under_load(&mut gateways, port, &endpoint, stops).await?;
    assert_eq!(fixture.stats().await?.calls_of("increment"), calls);
    Ok(())
}

#[tokio::test]
async fn a_stop_loses_no_request_on_a_kept_alive_connection() -> anyhow::Result<()> {
    stop_one(STOPS).await
}

#[tokio::test]
async fn a_stop_loses_no_request_behind_a_load_balancer() -> anyhow::Result<()> {
    stop_behind_nginx(STOPS).await
}

#[tokio::test]
#[ignore = "soak"]
async fn soak_a_thousand_stops_lose_no_request() -> anyhow::Result<()> {
    stop_one(STOPS_SOAK / 2).await?;
    stop_behind_nginx(STOPS_SOAK / 2).await
}

/// A client whose request arrives after the stop, on a connection that was idle, is served and told to close it.
#[tokio::test]
async fn a_request_on_an_idle_connection_of_a_stopping_gateway_is_served() -> anyhow::Result<()> {
    let fixture = Fixture::start("one").await?;
    // Longer than a busy machine needs to see the stop.
    let settings = kept(&[fixture.url()]).env("MOORING_WORKER_LEAVE_MS", "3000");
    let mut gateway = Gateway::start("idle", settings).await?;
    let port = gateway.port();
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let request = "GET /readyz HTTP/1.1\r\nhost: localhost\r\n\r\n";
    write(&mut stream, request).await?;
    let reply = read_until(&mut stream, "\"worker\"", SOON).await?;
    assert!(!reply.contains("connection: close"), "{reply}");
    gateway.process().begin_to_terminate()?;
    // A reply on the way at that moment would be the last one, and say nothing of the stop.
    wait::until_logged("stopping worker", 1, || gateway.process().log_text()).await?;
    write(&mut stream, request).await?;
    let reply = read_until(&mut stream, "\"worker\"", SOON).await?;
    assert!(reply.contains("stopping"), "{reply}");
    assert!(reply.contains("connection: close"), "{reply}");
    assert!(gateway.process().ended(SOON).await?.success());
    Ok(())
}

/// HTTP/2: the client is told by GOAWAY which requests are served, and these are answered.
#[tokio::test]
async fn a_stop_loses_no_stream_of_an_http2_connection() -> anyhow::Result<()> {
    let fixture = Fixture::start("one").await?;
    let mut gateway = Gateway::start("stopping", kept(&[fixture.url()])).await?;
    let stream = TcpStream::connect(("127.0.0.1", gateway.port())).await?;
    let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let endpoint = gateway.mcp_url("tools");
    let mut busy = Vec::new();
    for _ in 0..CLIENTS {
        let session =
            McpSession::open(&HttpClient::default(), std::slice::from_ref(&endpoint)).await?;
        busy.push(tokio::spawn(call_until_goaway(sender.clone(), session)));
    }
    drop(sender);
    let target = CALLS_BETWEEN;
    wait::until_true("calls", SOON, async || {
        Ok(fixture.stats().await?.calls_of("increment") >= target)
    })
    .await?;
    assert!(gateway.process().terminate().await?.success());
    connection
        .await?
        .context("the connection ended with an error")?;
    let mut answered = 0;
    for client in busy {
        answered += client.await??;
    }
    assert_eq!(fixture.stats().await?.calls_of("increment"), answered);
    Ok(())
}

/// Calls until the connection takes no further request; how many were answered.
async fn call_until_goaway(
    mut sender: http2::SendRequest<Full<Bytes>>,
    mut session: McpSession,
) -> anyhow::Result<u64> {
    let mut answered = 0;
    while sender.ready().await.is_ok() {
        let text = increment(&(answered + 1).to_string());
        let request = post_of(&mut session, text)?.map(Full::new);
        match sender.send_request(request).await {
            Ok(reply) => {
                let body = reply
                    .into_body()
                    .collect()
                    .await
                    .context("a reply was cut")?;
                ensure!(count_in(&body.to_bytes())? == answered + 1);
                answered += 1;
            }
            // Not processed: GOAWAY had a lower number.
            Err(_) => break,
        }
    }
    Ok(answered)
}

async fn write(stream: &mut TcpStream, text: &str) -> anyhow::Result<()> {
    use tokio::io::AsyncWriteExt as _;
    Ok(stream.write_all(text.as_bytes()).await?)
}
