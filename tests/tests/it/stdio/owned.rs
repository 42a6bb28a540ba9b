//! Servers whose sessions live in a process or a connection of one worker: every local process over one store uses the one
//! that another owns, and goes on visibly anew where its owner has ended.

use std::collections::BTreeSet;
use std::time::Duration;

use mooring_tests::client::HttpClient;
use mooring_tests::fixture::{Fixture, stdio_command};
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::process_tree::started_with;
use mooring_tests::session::McpSession;
use mooring_tests::stdio_client::StdioClient;
use mooring_tests::wait;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinSet;

use super::{MARK, SERVER};
use crate::keyed::{instances_table, stdio_table};
use crate::owned::rig::{GONE_WITHIN, unique};

/// How many processes share one server process at once.
const PROCESSES: u64 = 8;
/// Runs start a sandbox and a server in it.
const RUN_WITHIN: Duration = Duration::from_secs(60);

/// The server `tools`, started for each session, and settings by which every process of one machine shares it.
struct Scene {
    instance: String,
    settings: Settings,
    _state_home: TempDir,
}

impl Scene {
    /// `more` is TOML of further servers.
    fn with(more: &str) -> anyhow::Result<Self> {
        let instance = unique("local");
        let tools = stdio_table(SERVER, &stdio_command(&instance, None, &[])?);
        Self::of(instance, &format!("{tools}{more}"))
    }

    fn of(instance: String, tables: &str) -> anyhow::Result<Self> {
        let state_home = TempDir::new()?;
        let worker = "[worker]\nbeat_interval_ms = 100\nbeat_ttl_ms = 2000\n";
        Ok(Self {
            instance,
            settings: Settings::toml(format!("{worker}{tables}")).state_home(state_home.path()),
            _state_home: state_home,
        })
    }

    async fn open(&self, server: &str) -> anyhow::Result<StdioClient> {
        StdioClient::open(&self.settings, server, &[]).await
    }

    /// How many processes of the server there are, whoever started them.
    fn children(&self) -> anyhow::Result<usize> {
        Ok(started_with(&self.instance)?.len())
    }
}

/// Counts one up with this tool; the count.
async fn count(client: &mut StdioClient, tool: &str) -> anyhow::Result<u64> {
    let told = client.ask(tool, json!({})).await?;
    Ok(told["count"].as_u64().unwrap_or_default())
}

/// Counts one up where the state was lost, of which the client is told: by the reply, or on its stream where that met the
/// loss first.
async fn count_after_loss(client: &mut StdioClient, tool: &str) -> anyhow::Result<u64> {
    let result = client.call(tool, json!({})).await?;
    if result["_meta"][MARK]["state_lost"] != true {
        wait::until_true("a warning", GONE_WITHIN, async || {
            client.request("ping", json!({})).await?;
            let mut told = client.notifications().iter();
            Ok(told.any(|told| told["params"]["data"].get(MARK).is_some()))
        })
        .await?;
    }
    let count = result["structuredContent"]["count"].as_u64();
    Ok(count.unwrap_or_default())
}

/// Two processes count on together; the first, which owns, is ended by `end`, and the other goes on anew.
async fn share_and_lose(
    scene: &Scene,
    server: &str,
    tool: &str,
    end: impl AsyncFnOnce(StdioClient) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut owner = scene.open(server).await?;
    assert_eq!(count(&mut owner, tool).await?, 1);
    let mut other = scene.open(server).await?;
    for expected in [2, 4] {
        assert_eq!(count(&mut other, tool).await?, expected);
        assert_eq!(count(&mut owner, tool).await?, expected + 1);
    }
    end(owner).await?;
    assert_eq!(count_after_loss(&mut other, tool).await?, 1);
    assert_eq!(count(&mut other, tool).await?, 2);
    // Whoever comes now goes on with what is there.
    let mut third = scene.open(server).await?;
    assert_eq!(count(&mut third, tool).await?, 3);
    third.close().await?;
    assert_eq!(count(&mut other, tool).await?, 4);
    other.close().await
}

#[tokio::test]
async fn a_server_process_is_shared_by_local_processes_and_lost_with_its_owner_visibly()
-> anyhow::Result<()> {
    let scene = Scene::with("")?;
    share_and_lose(&scene, SERVER, "increment", StdioClient::close).await?;
    // The session goes on in a process of its own where all of them had ended.
    let mut killed = scene.open(SERVER).await?;
    assert_eq!(count_after_loss(&mut killed, "increment").await?, 1);
    assert_eq!(scene.children()?, 1, "one process for one session");
    killed.kill().await?;
    let mut next = scene.open(SERVER).await?;
    assert_eq!(count_after_loss(&mut next, "increment").await?, 1);
    next.close().await?;
    wait::until_true("the end of every server process", GONE_WITHIN, async || {
        Ok(scene.children()? == 0)
    })
    .await
}

#[tokio::test]
async fn a_legacy_stream_is_shared_by_local_processes_and_taken_over_from_a_killed_owner()
-> anyhow::Result<()> {
    let fixture = Fixture::start("legacy").await?;
    let table = instances_table(SERVER, "sse", &[fixture.sse_url()]);
    let scene = Scene::of(unique("legacy"), &table)?;
    share_and_lose(&scene, SERVER, "increment", StdioClient::kill).await?;
    wait::until_true("the end of every stream", GONE_WITHIN, async || {
        Ok(fixture.stats().await?.sessions_live == 0)
    })
    .await
}

#[tokio::test]
async fn a_group_keeps_the_state_of_every_kind_of_member_between_local_processes()
-> anyhow::Result<()> {
    let web = Fixture::start("web").await?;
    let more = [
        instances_table("web", "http", &[web.url()]),
        "[[servers]]\nid = \"sandbox\"\nkind = \"code\"\n".to_owned(),
        "[[servers]]\nid = \"all\"\nkind = \"group\"\nmembers = [\"web\", \"tools\", \"sandbox\"]\n"
            .to_owned(),
    ];
    let scene = Scene::with(&more.concat())?;
    share_and_lose(&scene, "all", "tools__increment", StdioClient::close).await?;
    let mut client = scene.open("all").await?;
    for expected in [1, 2] {
        assert_eq!(count(&mut client, "web__increment").await?, expected);
    }
    let run = json!({"code": "print(55)", "language": "python"});
    let printed = client.ask("sandbox__shell_exec", run).await?;
    assert_eq!(printed["output"], "55\n");
    client.close().await
}

#[tokio::test]
async fn processes_that_begin_at_once_share_one_server_process() -> anyhow::Result<()> {
    let scene = Scene::with("")?;
    let mut opening = JoinSet::new();
    for _ in 0..PROCESSES {
        let settings = scene.settings.clone();
        opening.spawn(async move {
            let mut client = StdioClient::open(&settings, SERVER, &[]).await?;
            let counted = count(&mut client, "increment").await?;
            anyhow::Ok((client, counted))
        });
    }
    let (mut clients, mut counts) = (Vec::new(), BTreeSet::new());
    while let Some(opened) = opening.join_next().await {
        let (client, counted) = opened??;
        clients.push(client);
        counts.insert(counted);
    }
    assert_eq!(counts, (1..=PROCESSES).collect());
    assert_eq!(scene.children()?, 1);
    for client in clients {
        client.close().await?;
    }
    Ok(())
}

/// Counts one up from a program, which any process of this machine runs; the count.
fn program() -> Value {
    let code = format!("from tools.{SERVER} import increment\nprint(increment()['count'])");
    json!({"language": "python", "code": code})
}

async fn count_by_code(client: &mut StdioClient) -> anyhow::Result<Value> {
    Ok(client.ask("shell_exec", program()).await?["output"].clone())
}

#[tokio::test]
async fn code_in_any_local_process_calls_the_server_process_that_another_owns() -> anyhow::Result<()>
{
    let scene = Scene::with("[[servers]]\nid = \"sandbox\"\nkind = \"code\"\n")?;
    let mut owner = scene.open("sandbox").await?;
    assert_eq!(count_by_code(&mut owner).await?, "1\n");
    let mut other = scene.open("sandbox").await?;
    assert_eq!(count_by_code(&mut other).await?, "2\n");
    assert_eq!(count_by_code(&mut owner).await?, "3\n");

    // A gateway of the same user on the same machine is one more of them.
    let gateway = Gateway::start("beside", scene.settings.clone()).await?;
    let client = HttpClient::new(RUN_WITHIN);
    let mut session = McpSession::open(&client, &[gateway.mcp_url("sandbox")]).await?;
    let answer = session.call("shell_exec", program()).await?;
    assert_eq!(answer["structuredContent"]["output"], "4\n", "{answer}");

    owner.kill().await?;
    let answer = session.call("shell_exec", program()).await?;
    assert_eq!(answer["structuredContent"]["output"], "1\n", "{answer}");
    assert_eq!(count_by_code(&mut other).await?, "2\n");
    other.close().await
}

#[tokio::test]
async fn a_server_process_is_served_where_neither_a_store_nor_a_key_can_be_written()
-> anyhow::Result<()> {
    let mut scene = Scene::with("")?;
    // A file is in the place of the directory.
    let file = tempfile::NamedTempFile::new()?;
    scene.settings = scene.settings.state_home(file.path());
    let mut client = scene.open(SERVER).await?;
    for expected in [1, 2] {
        assert_eq!(count(&mut client, "increment").await?, expected);
    }
    client.close().await
}
