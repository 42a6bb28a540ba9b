//! `mooring stdio`: one client over standard input and output, in a process that is started anew as often as the client
//! likes, with real servers behind it.

mod clients;
mod fresh;
mod kept;
mod owned;
mod refused;
mod robust;
mod together;

use std::collections::BTreeMap;

use anyhow::Context;
use mooring_tests::fixture::Fixture;
use mooring_tests::gateway::Settings;
use mooring_tests::servers::Server;
use mooring_tests::session::result_of;
use mooring_tests::stdio_client::StdioClient;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::rig::kept;

/// The id of the server in the settings of a [`Scene`].
const SERVER: &str = "tools";

/// The key of the mark in a result's `_meta`.
const MARK: &str = "mooring/rebound";

/// A server that counts for each of its sessions, and settings by which every process of one machine finds them again.
struct Scene<S> {
    server: S,
    settings: Settings,
    _state_home: TempDir,
}

impl<S> Scene<S> {
    fn of(server: S, url: String) -> anyhow::Result<Self> {
        let state_home = TempDir::new()?;
        Ok(Self {
            server,
            settings: kept(&[url]).state_home(state_home.path()),
            _state_home: state_home,
        })
    }
}

/// With fastmcp.
async fn with_fastmcp() -> anyhow::Result<Scene<Server>> {
    let server = Server::python_counting("one").await?;
    let url = server.url();
    Scene::of(server, url)
}

/// With the fixture, which counts what reaches it, and whose counts are whole also where two calls of a session meet.
async fn with_fixture() -> anyhow::Result<Scene<Fixture>> {
    let server = Fixture::start("one").await?;
    let url = server.url();
    Scene::of(server, url)
}

/// Counts one up, in a process for that alone: the count and the upstream session.
async fn count_anew(settings: &Settings, more: &[&str]) -> anyhow::Result<(u64, String)> {
    let mut client = StdioClient::open(settings, SERVER, more).await?;
    let counted = count(&mut client).await?;
    client.close().await?;
    Ok(counted)
}

/// Counts one up: the count and the upstream session.
async fn count(client: &mut StdioClient) -> anyhow::Result<(u64, String)> {
    counted(&client.ask("increment", json!({})).await?)
}

fn counted(told: &Value) -> anyhow::Result<(u64, String)> {
    let counted = told["count"].as_u64().zip(told["session"].as_str());
    let (count, session) = counted.with_context(|| format!("a count: {told}"))?;
    Ok((count, session.to_owned()))
}

/// Makes calls without waiting for the answer to the one before: the structured content of each, in the order of the
/// calls. Fails where anything is answered that was not asked.
async fn ask_at_once(
    client: &mut StdioClient,
    calls: &[(&str, Value)],
) -> anyhow::Result<Vec<Value>> {
    let mut open = BTreeMap::new();
    for (place, (tool, arguments)) in calls.iter().enumerate() {
        let params = json!({"name": tool, "arguments": arguments});
        open.insert(client.send("tools/call", params).await?, place);
    }
    let mut answers = vec![Value::Null; calls.len()];
    while !open.is_empty() {
        let message = client.read().await?.context("its output is at its end")?;
        if message.get("method").is_some() {
            continue;
        }
        let place = message["id"].as_u64().and_then(|id| open.remove(&id));
        let place = place.with_context(|| format!("nobody asked for {message}"))?;
        answers[place] = result_of(message)?["structuredContent"].clone();
    }
    Ok(answers)
}
