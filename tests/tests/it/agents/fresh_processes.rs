//! Clients that start the server anew for each call: `mooring stdio` over one state directory. What one process was told
//! to keep the next one has, however many there are at once and however they end.

use std::io::Write as _;
use std::time::Duration;

use anyhow::{Context, ensure};
use futures_util::future::try_join_all;
use mooring_tests::agent::{AgentHome, Ids, SERVER};
use mooring_tests::gateway::Settings;
use mooring_tests::stdio_client::StdioClient;
use serde_json::Value;
use tempfile::TempDir;
use tokio::time::timeout;

use super::{one_after_another, prompt_in, text};

/// Processes that are there at once.
const PROCESSES: usize = 100;
/// Processes that read at once what those have kept.
const READERS: usize = 20;
/// Kills, unless `MOORING_TEST_KILLS` says otherwise.
const KILLS: u64 = 200;
/// Conversations whose processes are killed, side by side.
const LANES: u64 = 4;
/// After how many kills of a lane is looked what is kept.
const LOOK_EVERY: u64 = 10;
/// What `MOORING_TEST_SEED` is added to.
const SEED: u64 = 7_007;
/// The longest pause before a kill, in milliseconds: a process needs about as long to start and to answer.
const PAUSE_MS_MAX: u64 = 400;

/// Processes that share a state directory and an agent.
pub(super) struct Machine {
    home: AgentHome,
    pub(super) state: TempDir,
    pub(super) settings: Settings,
}

impl Machine {
    /// No conversation yet.
    pub(super) fn new(ids: Ids) -> anyhow::Result<Self> {
        let (home, state) = (
            AgentHome::new(ids)?,
            TempDir::with_prefix("mooring-state-")?,
        );
        let settings = home.settings("embedded", "")?.state_home(state.path());
        Ok(Self {
            home,
            state,
            settings,
        })
    }

    /// Processes that were all started before the first of them is spoken to.
    async fn processes(&self, count: usize) -> anyhow::Result<Vec<StdioClient>> {
        let started = (0..count).map(|_| StdioClient::start(&self.settings, SERVER, &[]));
        let mut clients = started.collect::<anyhow::Result<Vec<_>>>()?;
        try_join_all(clients.iter_mut().map(StdioClient::initialize)).await?;
        Ok(clients)
    }

    /// One call by a process of its own, which ends then.
    async fn call(&self, parent: &str, prompt: &str) -> anyhow::Result<Value> {
        let mut client = StdioClient::open(&self.settings, SERVER, &[]).await?;
        let answer = client.ask(SERVER, prompt_in(parent, prompt)).await?;
        client.close().await?;
        Ok(answer)
    }
}

/// Every process makes one call; what is answered, in their order.
async fn all_call(
    clients: &mut [StdioClient],
    arguments: impl Fn(usize) -> Value,
) -> anyhow::Result<Vec<Value>> {
    let calls = clients.iter_mut().enumerate();
    try_join_all(calls.map(|(number, client)| client.ask(SERVER, arguments(number)))).await
}

async fn close(clients: Vec<StdioClient>) -> anyhow::Result<()> {
    try_join_all(clients.into_iter().map(StdioClient::close)).await?;
    Ok(())
}

#[tokio::test]
#[ignore = "soak"]
async fn soak_a_hundred_processes_at_once_lose_nothing() -> anyhow::Result<()> {
    let mut machine = Machine::new(Ids::Change)?;
    machine.settings = machine.settings.niced();
    let mut clients = machine.processes(PROCESSES).await?;
    let answers = all_call(&mut clients, |number| {
        prompt_in(&format!("chat {number}"), &format!("remember {number}"))
    })
    .await?;
    assert!(answers.iter().all(|answer| answer["resumed"] == false));
    close(clients).await?;

    for first in (0..PROCESSES).step_by(READERS) {
        let mut clients = machine.processes(READERS).await?;
        let answers = all_call(&mut clients, |number| {
            prompt_in(&format!("chat {}", first + number), "recall")
        })
        .await?;
        for (number, answer) in answers.iter().enumerate() {
            assert_eq!(answer["result"], (first + number).to_string(), "{answer}");
            assert_eq!(answer["resumed"], true, "{answer}");
            assert_eq!(answer["startedFresh"], Value::Null);
        }
        close(clients).await?;
    }
    Ok(())
}

#[tokio::test]
async fn processes_at_once_in_one_conversation_run_one_after_another() -> anyhow::Result<()> {
    const CALLS: usize = 20;
    // Where every run has a new id, one that did not see the run before it would leave that out.
    let machine = Machine::new(Ids::Change)?;
    let mut clients = machine.processes(CALLS).await?;
    let answers = all_call(&mut clients, |number| {
        prompt_in("chat", &format!("remember {number}"))
    })
    .await?;
    close(clients).await?;
    let sessions: Vec<String> = answers
        .iter()
        .map(|answer| text(answer, "agentSessionId"))
        .collect();
    let mut remembered = one_after_another(&machine.home, &sessions)?;
    let answer = machine.call("chat", "recall").await?;
    assert_eq!(answer["result"], remembered.join("\n"));
    remembered.sort_by_key(|number| number.parse::<usize>().unwrap_or(usize::MAX));
    let all: Vec<String> = (0..CALLS).map(|number| number.to_string()).collect();
    assert_eq!(remembered, all);
    Ok(())
}

/// A number of the environment.
fn given(name: &str) -> anyhow::Result<Option<u64>> {
    let text = std::env::var(name).ok();
    text.map(|text| text.parse().with_context(|| format!("{name} is a number")))
        .transpose()
}

/// One process that is to remember something, and is killed: before it was asked, while it works, or when it has answered.
/// What it answered, if it did.
async fn killed(
    machine: &Machine,
    rng: &mut fastrand::Rng,
    arguments: Value,
) -> anyhow::Result<Option<Value>> {
    let mut client = StdioClient::start(&machine.settings, SERVER, &[])?;
    let pause = Duration::from_millis(rng.u64(..PAUSE_MS_MAX));
    let asked = async {
        client.initialize().await?;
        client.ask(SERVER, arguments).await
    };
    let answer = match rng.u8(..4) {
        0 => Some(asked.await?),
        // Nothing but the clock decides how far it came.
        _ => timeout(pause, asked).await.ok().transpose()?,
    };
    client.kill().await?;
    Ok(answer)
}

/// What a fresh process finds in a conversation holds all that was acknowledged, in its order.
async fn look(machine: &Machine, parent: &str, acknowledged: &[String]) -> anyhow::Result<()> {
    if acknowledged.is_empty() {
        return Ok(());
    }
    let answer = machine.call(parent, "recall").await?;
    ensure!(answer["resumed"] == true, "{parent}: {answer}");
    ensure!(answer["startedFresh"].is_null(), "{parent}: {answer}");
    let recalled = text(&answer, "result");
    let mut lines = recalled.lines();
    for wanted in acknowledged {
        let is_there = lines.any(|line| line == wanted);
        ensure!(
            is_there,
            "{parent}: {wanted} was acknowledged and is lost: {recalled:?}"
        );
    }
    Ok(())
}

/// Kills so many processes of one conversation; how many of them had answered.
async fn lane(machine: &Machine, lane: u64, kills: u64, seed: u64) -> anyhow::Result<usize> {
    let mut rng = fastrand::Rng::with_seed(seed.wrapping_add(lane));
    let parent = format!("lane {lane}");
    let mut acknowledged = Vec::new();
    for number in 0..kills {
        let remembered = format!("{lane}-{number}");
        let arguments = prompt_in(&parent, &format!("remember {remembered}"));
        if let Some(answer) = killed(machine, &mut rng, arguments).await? {
            ensure!(answer["startedFresh"].is_null(), "{parent}: {answer}");
            let has_begun = !acknowledged.is_empty();
            ensure!(
                !has_begun || answer["resumed"] == true,
                "{parent}: {answer}"
            );
            acknowledged.push(remembered);
        }
        if (number + 1) % LOOK_EVERY == 0 {
            look(machine, &parent, &acknowledged).await?;
        }
    }
    look(machine, &parent, &acknowledged).await?;
    Ok(acknowledged.len())
}

#[tokio::test]
async fn processes_killed_at_random_lose_nothing_that_was_acknowledged() -> anyhow::Result<()> {
    let seed = SEED.wrapping_add(given("MOORING_TEST_SEED")?.unwrap_or_default());
    let kills = given("MOORING_TEST_KILLS")?.unwrap_or(KILLS);
    writeln!(std::io::stderr(), "{kills} kills, seed {seed}")?;
    let machine = Machine::new(Ids::Change)?;
    let lanes = (0..LANES).map(|number| lane(&machine, number, kills / LANES, seed));
    let acknowledged: usize = try_join_all(lanes).await?.iter().sum();
    writeln!(std::io::stderr(), "{acknowledged} acknowledged")?;
    assert!(acknowledged > 0);
    // The file is whole: another conversation begins in it.
    machine.call("after", "remember after").await?;
    let answer = machine.call("after", "recall").await?;
    assert_eq!(answer["result"], "after");
    assert!(machine.state.path().join("mooring/sessions.db").exists());
    Ok(())
}
