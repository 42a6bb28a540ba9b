//! Programs in a group: each is started when a session first needs it, and goes soon if nobody does.

use std::path::PathBuf;

use mooring_tests::client::HttpClient;
use mooring_tests::fixture::stdio_command;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::process_tree::started_with;
use mooring_tests::session::{McpSession, result_of};
use mooring_tests::wait;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::keyed::{KeyedFleet, stdio_table};
use crate::owned::rig::unique;
use crate::recovery::{call, count_of, mark_of};

const MEMBERS: [&str; 3] = ["a", "b", "c"];
/// As in the report of a user with the Inspector's command line, which ends without DELETE.
const CLIENTS: usize = 9;

/// A gateway with a group of three programs, each start of which is a line of a file.
struct Scene {
    gateway: Gateway,
    client: HttpClient,
    /// The argument by which the processes are found.
    child: String,
    starts: PathBuf,
    _directory: TempDir,
}

impl Scene {
    async fn start(further: &str) -> anyhow::Result<Self> {
        let directory = TempDir::with_prefix("mooring-programs-")?;
        let (child, starts) = (unique("programs"), directory.path().join("starts"));
        let note = format!("echo started >> '{}'; exec \"$@\"", starts.display());
        let mut command = vec!["sh".to_owned(), "-c".to_owned(), note, "sh".to_owned()];
        command.extend(stdio_command(&child, None, &[])?);
        let servers = MEMBERS.map(|id| {
            format!(
                "[[servers]]\nid = {id:?}\nkind = \"stdio\"\ncommand = {command:?}\n{further}\n"
            )
        });
        let toml = format!(
            "{}[[servers]]\nid = \"all\"\nkind = \"group\"\nmembers = {MEMBERS:?}\n",
            servers.concat()
        );
        Ok(Self {
            gateway: Gateway::start("programs", Settings::toml(toml)).await?,
            client: HttpClient::default(),
            child,
            starts,
            _directory: directory,
        })
    }

    async fn open(&self) -> anyhow::Result<McpSession> {
        McpSession::open(&self.client, &[self.gateway.mcp_url("all")]).await
    }

    fn starts(&self) -> anyhow::Result<usize> {
        Ok(std::fs::read_to_string(&self.starts)?.lines().count())
    }
}

async fn list(session: &mut McpSession) -> anyhow::Result<Value> {
    result_of(session.request("tools/list", json!({})).await?.response)
}

#[tokio::test]
async fn one_shot_clients_start_only_the_programs_that_they_call() -> anyhow::Result<()> {
    let scene = Scene::start("").await?;
    let mut first = None;
    for number in 0..CLIENTS {
        let mut session = scene.open().await?;
        let answered = (session.initialize_result.clone(), list(&mut session).await?);
        assert_eq!(first.get_or_insert(answered.clone()), &answered);
        let member = MEMBERS[number % MEMBERS.len()];
        let counted = call(&mut session, &format!("{member}__increment")).await?;
        assert_eq!(count_of(&counted), Some(1), "{counted:?}");
        assert_eq!(mark_of(&counted), None, "{counted:?}");
    }
    // Nothing was known to the first one. Each other one has the program that it called.
    assert_eq!(scene.starts()?, MEMBERS.len() + CLIENTS - 1);
    assert!(started_with(&scene.child)?.len() < MEMBERS.len() + CLIENTS);
    Ok(())
}

#[tokio::test]
async fn programs_that_nobody_called_go_soon_and_lose_nothing() -> anyhow::Result<()> {
    let scene = Scene::start("idle_timeout_seconds = 30").await?;
    let mut session = scene.open().await?;
    list(&mut session).await?;
    wait::until_true("the programs to end", wait::STARTED_WITHIN, async || {
        Ok(started_with(&scene.child)?.is_empty())
    })
    .await?;
    for count in 1..=2 {
        let counted = call(&mut session, "a__increment").await?;
        assert_eq!(count_of(&counted), Some(count), "{counted:?}");
        assert_eq!(mark_of(&counted), None, "{counted:?}");
    }
    Ok(())
}

#[tokio::test]
async fn the_stream_of_a_group_starts_no_program_and_is_joined_by_those_that_start()
-> anyhow::Result<()> {
    let scene = Scene::start("").await?;
    list(&mut scene.open().await?).await?;
    let mut session = scene.open().await?;
    let mut stream = session.listen(None).await?;
    assert_eq!(stream.status, 200);
    let level = json!({"level": "error"});
    let level = session.request("logging/setLevel", level).await?;
    assert_eq!(level.response["result"], json!({}), "{level:?}");
    assert_eq!(scene.starts()?, MEMBERS.len(), "those of the first session");
    let kind = json!({"kind": "tools"});
    session.call("b__notify_list_changed", kind).await?;
    assert_eq!(scene.starts()?, MEMBERS.len() + 1);
    let told = tokio::time::timeout(wait::STARTED_WITHIN, stream.next_message()).await??;
    let method = told.map(|message| message["method"].clone());
    assert_eq!(method, Some(json!("notifications/tools/list_changed")));
    Ok(())
}

#[tokio::test]
async fn the_stream_of_a_group_is_joined_by_a_program_that_another_gateway_starts()
-> anyhow::Result<()> {
    let group = "[[servers]]\nid = \"all\"\nkind = \"group\"\nmembers = [\"tools\"]\n";
    let command = stdio_command(&unique("programs"), None, &[])?;
    let fleet = KeyedFleet::start(2, &(stdio_table("tools", &command) + group)).await?;
    let (here, there) = (fleet.endpoints("all", 0), fleet.endpoints("all", 1));
    let client = HttpClient::default();
    // So that the second session starts no program.
    McpSession::open(&client, &here[..1]).await?;
    let mut session = McpSession::open(&client, &here[..1]).await?;
    let mut stream = session.listen(None).await?;
    assert_eq!(stream.status, 200);
    let kind = json!({"kind": "tools"});
    let mut elsewhere = session.fork(&client, &there[..1]);
    elsewhere.call("tools__notify_list_changed", kind).await?;
    let told = tokio::time::timeout(wait::STARTED_WITHIN, stream.next_message()).await??;
    let method = told.map(|message| message["method"].clone());
    assert_eq!(method, Some(json!("notifications/tools/list_changed")));
    Ok(())
}
