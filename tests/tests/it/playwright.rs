//! A browser for each session behind three gateways: a page stays open from call to call, whichever worker a call comes
//! through, and nobody sees the page of another.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};
use mooring_tests::client::HttpClient;
use mooring_tests::servers::{self, Server};
use mooring_tests::session::{McpSession, Opening};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::everything_streams::text_of;
use crate::keyed::{KeyedFleet, instances_table, stdio_table};

/// Longer than this server waits for the answer to a ping (5 s) after the pause between two (3 s): a session that does not
/// answer is over by then.
const LONGER_THAN_A_HEARTBEAT: Duration = Duration::from_secs(9);

/// The server behind three gateways: one instance for all sessions of `http` and `sse`, a process for each of `stdio`.
struct Browsers {
    fleet: KeyedFleet,
    client: HttpClient,
    _shared: Server,
    _output: TempDir,
}

impl Browsers {
    async fn start() -> anyhow::Result<Self> {
        let (shared, output) = (Server::playwright("shared").await?, TempDir::new()?);
        let tables = [
            instances_table("http", "http", &[shared.url()]),
            instances_table("sse", "sse", &[shared.sse_url()]),
            stdio_table("stdio", &servers::playwright_command(output.path())?),
        ];
        Ok(Self {
            fleet: KeyedFleet::start(3, &tables.concat()).await?,
            client: HttpClient::new(Duration::from_secs(60)),
            _shared: shared,
            _output: output,
        })
    }

    async fn open(&self, server: &str, first: usize) -> anyhow::Result<McpSession> {
        let opening = Opening {
            capabilities: json!({}),
            ..Opening::default()
        };
        let endpoints = self.fleet.endpoints(server, first);
        McpSession::open_with(&self.client, &endpoints, opening).await
    }
}

async fn navigate(session: &mut McpSession, page: &str) -> anyhow::Result<()> {
    let url = format!("data:text/html,<title>{page}</title><h1>heading of {page}</h1>");
    let result = session
        .call("browser_navigate", json!({"url": url}))
        .await?;
    ensure!(result["isError"] != true, "{result}");
    Ok(())
}

/// Asks for the page's title and for its content, through a worker each. Neither may come with the word that its state
/// was lost.
async fn check_page(session: &mut McpSession, page: &str) -> anyhow::Result<()> {
    let title = json!({"function": "() => document.title"});
    for (tool, arguments) in [("browser_evaluate", title), ("browser_snapshot", json!({}))] {
        let result = session.call(tool, arguments).await?;
        let text = text_of(&result);
        ensure!(text.contains(page), "{tool} on {page}: {text}");
        ensure!(result["_meta"] == Value::Null, "{tool} on {page}: {result}");
    }
    Ok(())
}

/// Listens as a client does that has nothing to say but that it is there, until the stream ends.
async fn answer_pings(
    mut listening: McpSession,
    mut answering: McpSession,
    pings: Arc<AtomicUsize>,
) -> anyhow::Result<()> {
    let mut stream = listening.listen(None).await?;
    ensure!(stream.status == 200, "listen: {}", stream.status);
    while let Some(message) = stream.next_message().await? {
        if message["method"] == "ping" {
            pings.fetch_add(1, Ordering::Relaxed);
            let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": {}});
            let reply = answering.post(&answer).await?;
            ensure!(reply.status == 202, "{answer}: {}", reply.status);
        }
    }
    Ok(())
}

/// Two sessions of each kind, all at once; one of the two listens. Over Streamable HTTP the server then asks that client
/// itself whether it is there; what it asks of connections that the gateways hold, they answer.
#[tokio::test]
async fn pages_stay_open_over_idle_times_and_are_never_another_sessions() -> anyhow::Result<()> {
    let browsers = Browsers::start().await?;
    let (mut listeners, pings) = (JoinSet::new(), Arc::new(AtomicUsize::new(0)));
    let mut sessions = Vec::new();
    for (number, server) in ["http", "http", "sse", "sse", "stdio", "stdio"]
        .into_iter()
        .enumerate()
    {
        let session = browsers.open(server, number).await?;
        if number % 2 == 0 {
            let fork =
                |first| session.fork(&browsers.client, &browsers.fleet.endpoints(server, first));
            listeners.spawn(answer_pings(
                fork(number + 1),
                fork(number + 2),
                Arc::clone(&pings),
            ));
        }
        sessions.push((session, format!("page {number} of {server}")));
    }
    for (session, page) in &mut sessions {
        navigate(session, page)
            .await
            .with_context(|| page.clone())?;
    }
    for (session, page) in &mut sessions {
        check_page(session, page).await?;
    }
    tokio::time::sleep(LONGER_THAN_A_HEARTBEAT).await;
    for (session, page) in &mut sessions {
        check_page(session, page).await?;
        check_page(session, page).await?;
    }
    assert_ne!(
        pings.load(Ordering::Relaxed),
        0,
        "no heartbeat in that time"
    );
    if let Some(ended) = listeners.try_join_next() {
        anyhow::bail!("a stream has ended: {ended:?}");
    }
    for (session, page) in &mut sessions {
        assert_eq!(session.delete().await?.status, 204, "{page}");
    }
    Ok(())
}
