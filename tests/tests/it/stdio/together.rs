//! Processes on machines of their own: what they share is a Redis with the module, and where files are concerned a volume.

use mooring_tests::code::CodeVolume;
use mooring_tests::fleet::settings_toml;
use mooring_tests::gateway::Settings;
use mooring_tests::redis::Redis;
use mooring_tests::servers::Server;
use mooring_tests::stdio_client::StdioClient;
use serde_json::{Value, json};

use super::{SERVER, ask_at_once, count, counted};

/// Calls that one process makes at once.
const CALLS: usize = 20;

/// Where sessions are and who has them. Without a state home that is given, each process has one of its own: it is on
/// another machine.
async fn shared() -> anyhow::Result<(Redis, Server, Settings)> {
    let (redis, server) = tokio::try_join!(Redis::start(), Server::python_counting("one"))?;
    let settings = Settings::toml(settings_toml("embedded", &[server.url()]));
    Ok((redis, server, settings))
}

#[tokio::test]
async fn what_one_machine_began_goes_on_at_another_also_after_a_kill() -> anyhow::Result<()> {
    let (redis, _server, settings) = shared().await?;
    let store = ["--store", &redis.url()];
    let mut first = None;
    for expected in 1..=6 {
        let mut client = StdioClient::start(&settings, SERVER, &store)?;
        let introduced = client.initialize().await?;
        let (counted, session) = count(&mut client).await?;
        assert_eq!(counted, expected);
        let told = (introduced, session);
        let first = first.get_or_insert_with(|| told.clone());
        assert_eq!(*first, told, "the introduction and the upstream session");
        if expected % 2 == 0 {
            client.kill().await?;
        } else {
            client.close().await?;
        }
    }
    // Without the flag a machine has sessions of its own.
    let mut alone = StdioClient::open(&settings, SERVER, &[]).await?;
    assert_eq!(count(&mut alone).await?.0, 1);
    alone.close().await
}

#[tokio::test]
async fn two_machines_call_in_one_session_at_once_and_their_calls_run_one_by_one()
-> anyhow::Result<()> {
    let (redis, _server, settings) = shared().await?;
    let store = ["--store", &redis.url()];
    let (mut one, mut other) = tokio::try_join!(
        StdioClient::open(&settings, SERVER, &store),
        StdioClient::open(&settings, SERVER, &store),
    )?;
    // What the server does for a call it does in two steps: two calls at once would give one count twice.
    let calls: Vec<(&str, Value)> = vec![("increment", json!({})); CALLS];
    let answers = tokio::try_join!(
        ask_at_once(&mut one, &calls),
        ask_at_once(&mut other, &calls),
    )?;
    let mut counts = Vec::new();
    for answer in answers.0.iter().chain(&answers.1) {
        counts.push(counted(answer)?.0);
    }
    counts.sort_unstable();
    let expected: Vec<u64> = (1..).take(2 * CALLS).collect();
    assert_eq!(counts, expected);
    one.close().await?;
    other.close().await
}

#[tokio::test]
async fn a_file_of_a_user_is_there_on_every_machine_that_has_the_volume() -> anyhow::Result<()> {
    let (redis, volume) = (Redis::start().await?, CodeVolume::new()?);
    let volume = volume.path().display().to_string();
    let settings = Settings::toml("").env("MOORING_CODE_BASE_DIR", &volume);
    let store = ["--store", &redis.url()];
    for round in 0..3 {
        let mut client = StdioClient::open(&settings, "sandbox", &store).await?;
        let append = format!("open('/scratch/rounds', 'a').write('{round}')");
        let run = json!({"code": append, "language": "python"});
        client.ask("shell_exec", run).await?;
        client.close().await?;
    }
    let mut client = StdioClient::open(&settings, "sandbox", &store).await?;
    let read = client
        .ask("fs_read", json!({"path": "/scratch/rounds"}))
        .await?;
    assert_eq!(read["content"], "012");
    client.close().await
}
