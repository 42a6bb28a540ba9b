//! What a flood of requests from strangers costs others at the same address: nothing. Replies to strangers come late beyond
//! their rate, whichever way they take through the gateway; those to known callers never do.

use anyhow::{Context, ensure};
use bytes::Bytes;
use futures_util::future::try_join_all;
use http::{Method, Request};
use http_body_util::Full;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use mooring_tests::client::HttpClient;
use mooring_tests::code::CodeVolume;
use mooring_tests::fixture::Fixture;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::session::{McpSession, Opening};
use mooring_tests::wait;
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::rig::{
    RAW_WITHIN, connect_from, initialize_params, kept, read_until, resident_peak_kib,
};

const USER: &str = "x-mooring-user";
/// A POST of a stranger.
const REFUSED: &str =
    "POST /servers/tools/mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\n{}";

/// A gateway where users are named in a header by 127.0.0.1, with a server of each way through it.
struct Scene {
    gateway: Gateway,
    _fixture: Fixture,
    _volume: CodeVolume,
}

impl Scene {
    async fn start(refusals_per_second: u32) -> anyhow::Result<Self> {
        let (fixture, volume) = (Fixture::start("one").await?, CodeVolume::new()?);
        let settings = Settings::toml(format!(
            "[listen]\nrefusals_per_peer_per_second = {refusals_per_second}\n\
             [affinity]\nenabled = true\n\
             [[servers]]\nid = \"tools\"\ninstances = [{:?}]\n\
             [[servers]]\nid = \"sandbox\"\nkind = \"code\"\nallow = [{{}}]\n",
            fixture.url()
        ))
        .users_by_header()
        .env(
            "MOORING_CODE_BASE_DIR",
            &volume.path().display().to_string(),
        );
        Ok(Self {
            gateway: Gateway::start("strangers", settings).await?,
            _fixture: fixture,
            _volume: volume,
        })
    }

    async fn session(&self) -> anyhow::Result<McpSession> {
        let opening = Opening::default().header(USER, "ada")?;
        let endpoint = [self.gateway.mcp_url("tools")];
        McpSession::open_with(&HttpClient::default(), &endpoint, opening).await
    }

    /// Strangers that never pause, so that a further refusal has to wait for as long as any.
    async fn flood(&self) -> anyhow::Result<JoinSet<anyhow::Result<()>>> {
        let mut flood = JoinSet::new();
        for _ in 0..8 {
            let mut stream = connect_from("127.0.0.1", &self.gateway).await?;
            flood.spawn(async move {
                loop {
                    stream.write_all(REFUSED.as_bytes()).await?;
                    read_until(&mut stream, "401 Unauthorized", RAW_WITHIN).await?;
                }
            });
        }
        wait::until_true("refusals to be delayed", RAW_WITHIN, async || {
            Ok(delayed(&self.gateway, "refusal").await? >= 8.0)
        })
        .await?;
        Ok(flood)
    }
}

async fn delayed(gateway: &Gateway, reply: &str) -> anyhow::Result<f64> {
    let label = format!("reply=\"{reply}\"");
    gateway
        .metric("mooring_replies_delayed_total", &[&label])
        .await
}

/// Sends a request `count` times over one connection without waiting for replies, and reads these.
async fn pipeline(
    gateway: &Gateway,
    address: &str,
    request: &str,
    count: usize,
) -> anyhow::Result<String> {
    let mut stream = connect_from(address, gateway).await?;
    let last = request.replacen("\r\n", "\r\nconnection: close\r\n", 1);
    let text = request.repeat(count - 1) + &last;
    stream.write_all(text.as_bytes()).await?;
    let mut replies = Vec::new();
    let reading = tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut replies);
    tokio::time::timeout(RAW_WITHIN, reading)
        .await
        .context("the replies do not come")??;
    let replies = String::from_utf8_lossy(&replies).into_owned();
    ensure!(
        replies.matches("HTTP/1.1 ").count() == count,
        "{request}: {replies}"
    );
    Ok(replies)
}

fn head(line: &str, headers: &str) -> String {
    format!("{line} HTTP/1.1\r\nhost: localhost\r\n{headers}content-length: 0\r\n\r\n")
}

#[tokio::test]
async fn refusals_are_delayed_whichever_way_the_request_takes() -> anyhow::Result<()> {
    const RATE: u32 = 2;
    // A busy machine may take so long for the first requests that the last one passes, too.
    const ATTEMPTS_MAX: u8 = 8;
    let scene = Scene::start(RATE).await?;
    let preflight = "origin: http://localhost\r\naccess-control-request-method: POST\r\n";
    let per_second = RATE as usize;
    let refusals = [
        (REFUSED.to_owned(), 403),
        (head("POST /mcp", ""), 403),
        (head("POST /servers/%74ools/mcp", ""), 403),
        (head("GET /servers/tools/mcp", ""), 403),
        (head("DELETE /servers/tools/mcp", ""), 403),
        (head("GET /servers/tools/sse", ""), 403),
        (head("POST /servers/tools/sse", ""), 405),
        (head("POST /servers/tools/messages?sessionId=a", ""), 403),
        (head("GET /servers/sandbox/code/runs", ""), 403),
        (head("POST /servers/sandbox/code/runs", ""), 405),
        (head("GET /nowhere", ""), 404),
        (head("GET /.well-known/oauth-protected-resource", ""), 404),
        (head("GET /servers/%FF/mcp", ""), 400),
        (
            head("POST /servers/tools/mcp", "").replace("localhost", "evil"),
            421,
        ),
        (head("POST /mcp", "origin: https://evil.example\r\n"), 403),
    ];
    let publics = [
        (head("GET /healthz", ""), 200),
        (head("OPTIONS /mcp", preflight), 204),
    ];
    let refusals = (refusals.iter()).map(|case| (case, "refusal", per_second + 1));
    let publics = (publics.iter()).map(|case| (case, "public", 10 * per_second + 1));
    for (number, ((request, status), reply, count)) in refusals.chain(publics).enumerate() {
        let mut is_delayed = false;
        for attempt in 0..ATTEMPTS_MAX {
            let before = delayed(&scene.gateway, reply).await?;
            // Each with an address of its own, which none of the users has.
            let address = format!("127.0.{attempt}.{}", number + 2);
            let replies = pipeline(&scene.gateway, &address, request, count).await?;
            let expected = format!("HTTP/1.1 {status} ");
            ensure!(
                replies.matches(&expected).count() == count,
                "{request}: {replies}"
            );
            is_delayed = delayed(&scene.gateway, reply).await? > before;
            if is_delayed {
                break;
            }
        }
        assert!(is_delayed, "not delayed: {request}");
    }
    Ok(())
}

#[tokio::test]
async fn known_callers_are_not_delayed_beside_strangers_at_their_address() -> anyhow::Result<()> {
    let scene = Scene::start(1).await?;
    let mut session = scene.session().await?;
    let _flood = scene.flood().await?;
    let url = |path: &str| scene.gateway.url(path);
    let own = |method: Method, path: &str| {
        let request = Request::builder().method(method).uri(url(path));
        let accept = "application/json, text/event-stream";
        request
            .header(USER, "ada")
            .header("accept", accept)
            .body(Bytes::new())
    };
    let client = HttpClient::default();
    let encoded = "/servers/%74ools/mcp";
    let requests = [
        (session.http_request(Method::POST, call("1").into())?, 200),
        (session.http_request(Method::GET, Bytes::new())?, 200),
        (own(Method::GET, "/servers/tools/sse")?, 200),
        (own(Method::POST, "/servers/tools/messages")?, 415),
        (own(Method::GET, "/servers/sandbox/code/runs")?, 200),
        (own(Method::GET, "/servers/sandbox/code/runs/none")?, 404),
        (own(Method::POST, encoded)?, 415),
        (own(Method::POST, "/servers/none/mcp")?, 404),
        (own(Method::DELETE, "/servers/tools/mcp")?, 400),
    ];
    for (request, status) in requests {
        let what = format!("{} {}", request.method(), request.uri());
        // The call comes second and is answered first. A machine that stops meanwhile may hide that, so it is tried again.
        wait::until_true(&format!("{what} to overtake"), RAW_WITHIN, async || {
            let mut refused = connect_from("127.0.0.1", &scene.gateway).await?;
            refused.write_all(REFUSED.as_bytes()).await?;
            let reply = client.send(request.clone()).await?;
            assert_eq!(reply.status, status, "{what}");
            let has_overtaken = refused.try_read(&mut [0; 1]).is_err();
            read_until(&mut refused, "401 Unauthorized", RAW_WITHIN).await?;
            Ok(has_overtaken)
        })
        .await?;
    }
    Ok(())
}

fn call(id: &str) -> String {
    crate::rig::increment(id)
}

#[tokio::test]
async fn a_stream_of_http2_is_delayed_alone() -> anyhow::Result<()> {
    let scene = Scene::start(1).await?;
    let mut session = scene.session().await?;
    let _flood = scene.flood().await?;
    let stream = TcpStream::connect(("127.0.0.1", scene.gateway.port())).await?;
    let (requests, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let before = delayed(&scene.gateway, "refusal").await?;
    wait::until_true("a call to overtake", RAW_WITHIN, async || {
        let mut requests = requests.clone();
        let mut refused = session.http_request(Method::POST, call("1").into())?;
        refused.headers_mut().remove(USER);
        let refused = tokio::spawn(requests.send_request(refused.map(Full::new)));
        let called = session.http_request(Method::POST, call("2").into())?;
        let called = requests.send_request(called.map(Full::new)).await?;
        assert_eq!(called.status(), 200);
        let has_overtaken = !refused.is_finished();
        assert_eq!(refused.await??.status(), 401);
        Ok(has_overtaken)
    })
    .await?;
    assert!(delayed(&scene.gateway, "refusal").await? > before);
    Ok(())
}

#[tokio::test]
async fn a_connection_for_each_request_changes_nothing() -> anyhow::Result<()> {
    let scene = Scene::start(1).await?;
    let exchanges = (0..8).map(async |_| {
        let replies = pipeline(&scene.gateway, "127.0.0.2", REFUSED, 1).await?;
        assert!(replies.starts_with("HTTP/1.1 403 "), "{replies}");
        anyhow::Ok(())
    });
    try_join_all(exchanges).await?;
    // One that does not wait for the reply: another one has to wait for longer.
    let mut gone = connect_from("127.0.0.2", &scene.gateway).await?;
    gone.write_all(REFUSED.as_bytes()).await?;
    drop(gone);
    assert!(delayed(&scene.gateway, "refusal").await? >= 3.0);
    assert_eq!(scene.session().await?.increment().await?, 1);
    Ok(())
}

/// Where nobody is authenticated, a request is not refused to a stranger once it names a server that is there.
#[tokio::test]
async fn without_authentication_strangers_are_those_who_name_no_server() -> anyhow::Result<()> {
    let fixture = Fixture::start("one").await?;
    let settings = kept(&[fixture.url()]).env("MOORING_LISTEN_REFUSALS_PER_PEER_PER_SECOND", "1");
    let gateway = Gateway::start("open", settings).await?;
    let headers = "content-type: application/json\r\naccept: */*\r\nmcp-session-id: none\r\n";
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}).to_string();
    let ping = |server: &str| {
        let length = format!("content-length: {}\r\n\r\n{body}", body.len());
        head(&format!("POST /servers/{server}/mcp"), headers)
            .replace("content-length: 0\r\n\r\n", &length)
    };
    let served = pipeline(&gateway, "127.0.0.1", &ping("tools"), 20).await?;
    assert!(served.starts_with("HTTP/1.1 404 "), "{served}");
    assert_eq!(delayed(&gateway, "refusal").await?, 0.0);
    let refused = pipeline(&gateway, "127.0.0.1", &ping("none"), 2).await?;
    assert!(refused.starts_with("HTTP/1.1 404 "), "{refused}");
    assert_eq!(delayed(&gateway, "refusal").await?, 1.0);

    let settings = kept(&[fixture.url()]).env("MOORING_LISTEN_REFUSALS_PER_PEER_PER_SECOND", "0");
    let gateway = Gateway::start("unlimited", settings).await?;
    pipeline(&gateway, "127.0.0.1", &ping("none"), 100).await?;
    assert_eq!(delayed(&gateway, "refusal").await?, 0.0);
    Ok(())
}

#[tokio::test]
async fn a_gateway_that_stops_answers_those_who_wait() -> anyhow::Result<()> {
    const WAITING: usize = 20;
    let mut scene = Scene::start(1).await?;
    let mut waiting = Vec::new();
    for _ in 0..WAITING {
        let mut stream = connect_from("127.0.0.2", &scene.gateway).await?;
        stream.write_all(REFUSED.as_bytes()).await?;
        waiting.push(stream);
    }
    wait::until_true("the refusals to wait", RAW_WITHIN, async || {
        Ok(delayed(&scene.gateway, "refusal").await? >= WAITING as f64 - 1.0)
    })
    .await?;
    let replies = waiting
        .iter_mut()
        .map(|stream| read_until(stream, "403 Forbidden", RAW_WITHIN));
    let (status, replies) =
        tokio::join!(scene.gateway.process().terminate(), try_join_all(replies));
    assert!(status?.success());
    replies?;
    Ok(())
}

#[tokio::test]
async fn the_body_of_a_request_that_waits_is_not_held() -> anyhow::Result<()> {
    const BODY_BYTES: usize = 4 * 1024 * 1024;
    const WAITING: usize = 48;
    const HELD_KIB_MAX: u64 = 64 * 1024;
    let mut scene = Scene::start(1).await?;
    let body = Bytes::from(
        initialize_params()
            .to_string()
            .into_bytes()
            .repeat(BODY_BYTES / initialize_params().to_string().len()),
    );
    let before = resident_peak_kib(scene.gateway.process().id())?;
    let mut sending = JoinSet::new();
    for _ in 0..WAITING {
        let mut stream = connect_from("127.0.0.2", &scene.gateway).await?;
        let text = REFUSED.replace(
            "length: 2\r\n\r\n{}",
            &format!("length: {}\r\n\r\n", body.len()),
        );
        let body = body.clone();
        sending.spawn(async move {
            stream.write_all(text.as_bytes()).await?;
            // The gateway closes without reading it.
            let written = stream.write_all(&body).await;
            anyhow::Ok(written.is_ok())
        });
    }
    wait::until_true("the refusals to wait", RAW_WITHIN, async || {
        Ok(delayed(&scene.gateway, "refusal").await? >= WAITING as f64 - 1.0)
    })
    .await?;
    while let Some(sent) = sending.join_next().await {
        sent??;
    }
    let held = resident_peak_kib(scene.gateway.process().id())? - before;
    assert!(held < HELD_KIB_MAX, "{held} KiB");
    Ok(())
}
