//! What one process began, the next one goes on with: the session of a server, of a group, and the files of a sandbox;
//! and whose session it is.

use std::collections::BTreeSet;

use mooring_tests::fixture::Fixture;
use mooring_tests::gateway::Settings;
use mooring_tests::session::Opening;
use mooring_tests::stdio_client::StdioClient;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{MARK, SERVER, ask_at_once, count, count_anew, counted, with_fastmcp, with_fixture};

/// Calls of each kind that one process makes at once.
const CALLS: usize = 25;

#[tokio::test]
async fn a_client_that_is_started_anew_for_each_call_goes_on_counting() -> anyhow::Result<()> {
    let scene = with_fastmcp().await?;
    let mut first = None;
    for expected in 1..=5 {
        let mut client = StdioClient::start(&scene.settings, SERVER, &[])?;
        let introduced = client.initialize().await?;
        let (counted, session) = count(&mut client).await?;
        client.close().await?;
        assert_eq!(counted, expected);
        let told = (introduced, session);
        let first = first.get_or_insert_with(|| told.clone());
        assert_eq!(*first, told, "the introduction and the upstream session");
    }
    Ok(())
}

#[tokio::test]
async fn every_principal_name_and_program_has_a_session_of_its_own() -> anyhow::Result<()> {
    let scene = with_fastmcp().await?;
    let settings = &scene.settings;
    let mut sessions = BTreeSet::new();
    let all: [&[&str]; 4] = [
        &[],
        &["--session", "other"],
        &["--principal", "ada"],
        &["--principal", "ada", "--session", "other"],
    ];
    for more in all {
        let (count, session) = count_anew(settings, more).await?;
        assert_eq!(count, 1, "{more:?}");
        sessions.insert(session);
    }
    // Neither who it is nor what it can do may be another program's.
    for (name, capabilities) in [("other", json!({})), ("other", json!({"roots": {}}))] {
        let mut client = StdioClient::start(settings, SERVER, &[])?;
        let params = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": capabilities,
            "clientInfo": {"name": name, "version": "1"},
        });
        client.request("initialize", params).await?;
        client
            .write(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
            .await?;
        let (count, session) = count(&mut client).await?;
        client.close().await?;
        assert_eq!(count, 1, "{name} {capabilities}");
        sessions.insert(session);
    }
    assert_eq!(sessions.len(), 6, "{sessions:?}");
    for more in all {
        let (count, session) = count_anew(settings, more).await?;
        assert_eq!(count, 2, "{more:?}");
        assert!(sessions.contains(&session), "{more:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_session_of_one_process_ends_with_it_upstream_too_and_no_other_does() -> anyhow::Result<()>
{
    let scene = with_fixture().await?;
    let settings = &scene.settings;
    let (count, named) = count_anew(settings, &[]).await?;
    assert_eq!((count, scene.server.stats().await?.deletes), (1, 0));
    for deletes in 1..=2 {
        let (count, own) = count_anew(settings, &["--new-session"]).await?;
        assert_eq!(count, 1);
        assert_ne!(own, named);
        let stats = scene.server.stats().await?;
        assert_eq!((stats.deletes, stats.sessions_live), (deletes, 1));
    }
    assert_eq!(count_anew(settings, &[]).await?, (2, named));
    Ok(())
}

#[tokio::test]
async fn a_group_goes_on_with_the_state_and_the_files_of_its_members() -> anyhow::Result<()> {
    let (server, state_home) = (Fixture::start("one").await?, TempDir::new()?);
    let toml = format!(
        "[[servers]]\nid = \"tools\"\nkind = \"http\"\ninstances = [{:?}]\n\
         [[servers]]\nid = \"sandbox\"\nkind = \"code\"\n\
         [[servers]]\nid = \"all\"\nkind = \"group\"\nmembers = [\"tools\", \"sandbox\"]\n",
        server.url()
    );
    let settings = Settings::toml(toml).state_home(state_home.path());
    let mut written = None;
    let mut first = None;
    for round in 1..=3 {
        let mut client = StdioClient::start(&settings, "all", &[])?;
        let introduced = client.initialize().await?;
        let answer = client.ask("tools__increment", json!({})).await?;
        let (count, session) = counted(&answer)?;
        assert_eq!(count, round);
        let told = (introduced, session);
        let first = first.get_or_insert_with(|| told.clone());
        assert_eq!(*first, told, "the introduction and the upstream session");
        let path = "/scratch/kept";
        if let Some(content) = written {
            let read = client
                .ask("sandbox__fs_read", json!({"path": path}))
                .await?;
            assert_eq!(read["content"], json!(content));
        }
        let content = format!("round {round}");
        let file = json!({"path": path, "content": content});
        client.ask("sandbox__fs_write", file).await?;
        client.close().await?;
        written = Some(content);
    }
    Ok(())
}

#[tokio::test]
async fn a_server_that_only_the_command_line_names_is_found_again() -> anyhow::Result<()> {
    let (server, state_home) = (Fixture::start("one").await?, TempDir::new()?);
    let settings = Settings::toml("").state_home(state_home.path());
    let named = format!("{SERVER}={}", server.url());
    let mut sessions = BTreeSet::new();
    for expected in 1..=3 {
        let mut client = StdioClient::open(&settings, &named, &[]).await?;
        let (counted, session) = count(&mut client).await?;
        client.close().await?;
        assert_eq!(counted, expected);
        sessions.insert(session);
    }
    assert_eq!(sessions.len(), 1, "{sessions:?}");
    Ok(())
}

#[tokio::test]
async fn without_affinity_everything_is_served_and_nothing_kept() -> anyhow::Result<()> {
    let (server, state_home) = (Fixture::start("one").await?, TempDir::new()?);
    let toml = format!(
        "[[servers]]\nid = {SERVER:?}\ninstances = [{:?}]\naffinity = \"off\"\n",
        server.url()
    );
    let settings = Settings::toml(toml).state_home(state_home.path());
    let mut sessions = BTreeSet::new();
    for more in [&[][..], &[], &["--new-session"]] {
        let mut client = StdioClient::open(&settings, SERVER, more).await?;
        let listed = client.request("tools/list", json!({})).await?;
        assert!(listed["tools"].to_string().contains("increment"));
        let (counted, session) = count(&mut client).await?;
        client.close().await?;
        assert_eq!(counted, 1, "{more:?}");
        sessions.insert(session);
    }
    assert_eq!(sessions.len(), 3, "{sessions:?}");
    Ok(())
}

#[tokio::test]
async fn two_processes_of_one_session_with_equal_request_ids_each_get_their_own_answers()
-> anyhow::Result<()> {
    let scene = with_fixture().await?;
    let (mut one, mut other) = tokio::try_join!(
        StdioClient::open(&scene.settings, SERVER, &[]),
        StdioClient::open(&scene.settings, SERVER, &[]),
    )?;
    let (by_one, by_other) = tokio::try_join!(
        count_and_echo(&mut one, "one"),
        count_and_echo(&mut other, "other")
    )?;
    let mut counts = [by_one, by_other].concat();
    counts.sort_unstable();
    let expected: Vec<u64> = (1..).take(2 * CALLS).collect();
    assert_eq!(counts, expected, "no count is lost, and none told twice");
    assert_eq!(scene.server.stats().await?.initializes, 1);
    one.close().await?;
    // One of them ended, and the session has not.
    assert_eq!(count(&mut other).await?.0, expected.len() as u64 + 1);
    other.close().await
}

/// Counts, and has the server say words that no other client knows; the counts.
async fn count_and_echo(client: &mut StdioClient, name: &str) -> anyhow::Result<Vec<u64>> {
    let token = |number: usize| json!(format!("{name}-{number}"));
    let calls: Vec<(&str, Value)> = (0..CALLS)
        .flat_map(|number| {
            let slow = json!({"ms": 0, "token": token(number)});
            [("increment", json!({})), ("slow", slow)]
        })
        .collect();
    let answers = ask_at_once(client, &calls).await?;
    let mut counts = Vec::new();
    for (number, pair) in answers.chunks(2).enumerate() {
        counts.push(counted(&pair[0])?.0);
        assert_eq!(pair[1]["token"], token(number), "{name}");
    }
    Ok(counts)
}

#[tokio::test]
async fn a_process_that_finds_its_upstream_session_lost_says_so_once() -> anyhow::Result<()> {
    let mut scene = with_fixture().await?;
    let mut client = StdioClient::start(&scene.settings, SERVER, &[])?;
    let introduced = client.initialize().await?;
    assert_eq!(count(&mut client).await?.0, 1);
    assert_eq!(count(&mut client).await?.0, 2);
    client.close().await?;
    scene.server.restart().await?;

    // A client that does not say that it has initialized listens to no stream, which would be told as well as the reply.
    let mut client = StdioClient::start(&scene.settings, SERVER, &[])?;
    let params = Opening::default().initialize_params();
    assert_eq!(client.request("initialize", params).await?, introduced);
    let first = client.call("increment", json!({})).await?;
    assert_eq!(first["structuredContent"]["count"], 1);
    let mark = &first["_meta"][MARK];
    assert_eq!(mark["state_lost"], true, "{first}");
    let warned: Vec<&Value> = client
        .notifications()
        .iter()
        .filter_map(|told| told["params"]["data"].get(MARK))
        .collect();
    assert_eq!(warned, [mark]);
    let second = client.call("increment", json!({})).await?;
    assert_eq!(second["structuredContent"]["count"], 2);
    assert_eq!(second["_meta"][MARK], Value::Null, "{second}");
    client.close().await?;

    let mut client = StdioClient::open(&scene.settings, SERVER, &[]).await?;
    let third = client.call("increment", json!({})).await?;
    assert_eq!(third["structuredContent"]["count"], 3);
    assert_eq!(third["_meta"][MARK], Value::Null, "{third}");
    client.close().await?;
    assert_eq!(scene.server.stats().await?.initializes, 1);
    Ok(())
}

#[tokio::test]
async fn a_sandbox_that_nobody_configured_keeps_the_files_of_each_principal() -> anyhow::Result<()>
{
    let state_home = TempDir::new()?;
    let settings = Settings::toml("").state_home(state_home.path());
    let mut client = StdioClient::open(&settings, "sandbox", &[]).await?;
    let listed = client.request("tools/list", json!({})).await?;
    let listed = listed["tools"].as_array().cloned().unwrap_or_default();
    let names: Vec<&Value> = listed.iter().map(|tool| &tool["name"]).collect();
    assert_eq!(
        names,
        [
            "shell_exec",
            "fs_browse",
            "fs_read",
            "fs_write",
            "tool_search"
        ]
    );
    let file = json!({"path": "/scratch/note", "content": "kept"});
    client.ask("fs_write", file).await?;
    client.close().await?;

    // Neither the name nor the life of an MCP session matters here.
    for more in [&[][..], &["--session", "other"], &["--new-session"]] {
        let mut client = StdioClient::open(&settings, "sandbox", more).await?;
        let run = json!({"code": "cat /scratch/note"});
        let answer = client.ask("shell_exec", run).await?;
        assert_eq!(answer["output"], "kept", "{more:?}");
        client.close().await?;
    }
    let mut other = StdioClient::open(&settings, "sandbox", &["--principal", "ada"]).await?;
    let answer = other
        .call("fs_read", json!({"path": "/scratch/note"}))
        .await?;
    assert_eq!(answer["isError"], true, "{answer}");
    other.close().await
}
