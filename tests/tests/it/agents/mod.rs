//! Servers of kind `agent`: conversations that go on from call to call, whichever process serves them. The agent is a
//! stand-in that remembers, and in [`programs`] a real one whose model is a stand-in; everything else is real.

mod asked;
mod conversations;
mod disk;
mod ending;
mod fleet;
mod fresh_processes;
mod imported;
mod limits;
mod programs;

use std::time::Duration;

use anyhow::{Context, ensure};
use mooring_tests::agent::{AgentHome, AgentUser, Ids, SERVER};
use mooring_tests::client::HttpClient;
use mooring_tests::code::USER;
use mooring_tests::gateway::Gateway;
use mooring_tests::process_tree::{name_of, started_with};
use mooring_tests::redis::Redis;
use mooring_tests::session::{Exchange, McpSession, Opening, read_exchange};
use mooring_tests::wait;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

const ADA: &str = "ada@example.org";
const BOB: &str = "bob@example.org";

/// How long one call may take on a busy machine.
const CALL_WITHIN: Duration = Duration::from_secs(60);
/// How long processes may take to come or to go.
const SEEN_WITHIN: Duration = Duration::from_secs(60);

/// The name of a run's metric that counts them.
const RUNS: &str = "mooring_agent_run_duration_seconds_count";

/// Gateways over one Redis, each with a state directory of its own, and one agent server.
struct Scene {
    home: AgentHome,
    gateways: Vec<Gateway>,
    redis: Redis,
}

impl Scene {
    /// `more` is further lines of the server's table, and tables behind it.
    async fn start(count: usize, ids: Ids, more: &str) -> anyhow::Result<Self> {
        let (home, redis) = (AgentHome::new(ids)?, Redis::start().await?);
        let settings = home.settings(&redis.url(), more)?;
        let gateways = Gateway::fleet(count, &settings).await?;
        Ok(Self {
            home,
            gateways,
            redis,
        })
    }

    /// A user whose every request goes to another gateway.
    async fn user(&self, name: &str) -> anyhow::Result<AgentUser> {
        let gateways: Vec<&Gateway> = self.gateways.iter().collect();
        AgentUser::open(&gateways, name).await
    }

    /// How many runs ended so, at all gateways.
    async fn runs(&self, outcome: &str) -> anyhow::Result<f64> {
        let label = format!("outcome=\"{outcome}\"");
        let mut sum = 0.0;
        for gateway in &self.gateways {
            sum += gateway.metric(RUNS, &[&label]).await?;
        }
        Ok(sum)
    }
}

/// A client of one server that shows every message.
async fn session_at(gateway: &Gateway, server: &str, user: &str) -> anyhow::Result<McpSession> {
    let opening = Opening::default().header(USER, user)?;
    let client = HttpClient::new(CALL_WITHIN);
    McpSession::open_with(&client, &[gateway.mcp_url(server)], opening).await
}

/// A call that goes on while the test does something else.
struct Call {
    /// The client that made it, under the same session id.
    client: McpSession,
    /// The id of its request.
    id: Value,
    answered: JoinHandle<anyhow::Result<Exchange>>,
}

impl Call {
    /// Begins it.
    async fn begin(
        gateway: &Gateway,
        server: &str,
        user: &str,
        arguments: Value,
    ) -> anyhow::Result<Self> {
        let mut session = session_at(gateway, server, user).await?;
        let client = session.fork(&HttpClient::new(CALL_WITHIN), &[gateway.mcp_url(server)]);
        let params = json!({"name": server, "arguments": arguments});
        let body = session.request_body("tools/call", params);
        let id = body["id"].clone();
        let answered = tokio::spawn(async move {
            let reply = session.post(&body).await?;
            read_exchange(reply, &body).await
        });
        Ok(Self {
            client,
            id,
            answered,
        })
    }

    /// Tells the server that nobody wants its answer.
    async fn cancel(&mut self) -> anyhow::Result<()> {
        let message = json!({
            "jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": self.id},
        });
        let accepted = self.client.post(&message).await?;
        ensure!(accepted.status == 202, "{}", accepted.status);
        Ok(())
    }

    /// Waits for its answer: what is structured of it, and whether it is marked as an error.
    async fn answer(self) -> anyhow::Result<(Value, bool)> {
        let response = self.answered.await??.response;
        let result = response.get("result").context("a result")?;
        let is_error = result["isError"] == json!(true);
        Ok((result["structuredContent"].clone(), is_error))
    }
}

/// The table of an agent server whose runs last until they are ended. The prompt is a number of seconds; every process of
/// a run has it as an argument: one that the gateway started, and one in a session of its own that this one started.
fn sleeper_toml(id: &str, more: &str) -> String {
    let script = "setsid sleep \"$1\" & exec sleep \"$1\"";
    let command = ["/bin/sh", "-c", script, "sh", "{prompt}"];
    format!(
        "[[servers]]\nid = {id:?}\nkind = \"agent\"\nallow = [{{}}]\ncommand = {command:?}\noutput = \"text\"\n{more}\n"
    )
}

/// More seconds than any test lasts, which no other run sleeps.
fn long_time() -> String {
    format!("86400.{:09}", fastrand::u32(..1_000_000_000))
}

/// Waits until both processes of a run of the sleeper are there.
async fn until_asleep(seconds: &str) -> anyhow::Result<()> {
    wait::until_true("the sleepers", SEEN_WITHIN, async || {
        let ids = started_with(seconds)?;
        let are_asleep = ids
            .iter()
            .all(|id| name_of(*id).is_some_and(|name| name == "sleep"));
        Ok(ids.len() == 2 && are_asleep)
    })
    .await
}

/// Waits until the stand-in runs with this prompt.
async fn until_running(prompt: &str) -> anyhow::Result<()> {
    let argument = format!("--prompt={prompt}");
    wait::until_true("the agent to run", SEEN_WITHIN, async || {
        Ok(!started_with(&argument)?.is_empty())
    })
    .await
}

/// Waits until no process has this argument.
async fn until_gone(argument: &str) -> anyhow::Result<()> {
    wait::until_true("the end of the processes", SEEN_WITHIN, async || {
        Ok(started_with(argument)?.is_empty())
    })
    .await
}

fn text(answer: &Value, field: &str) -> String {
    let text = answer[field].as_str();
    text.unwrap_or_else(|| panic!("a text {field}: {answer}"))
        .to_owned()
}

/// The arguments of a call in a conversation.
fn prompt_in(parent: &str, prompt: &str) -> Value {
    json!({"prompt": prompt, "parentSessionId": parent})
}

/// What was remembered by runs that followed one another: each of them, given by its agent's session, saw all that those
/// before it remembered. The last one's.
fn one_after_another(home: &AgentHome, sessions: &[String]) -> anyhow::Result<Vec<String>> {
    let mut remembered = Vec::new();
    for session in sessions {
        remembered.push(home.remembered(session)?);
    }
    remembered.sort_by_key(Vec::len);
    for (number, pair) in remembered.windows(2).enumerate() {
        ensure!(pair[0].len() == number + 1, "run {number}: {pair:?}");
        ensure!(pair[1].starts_with(&pair[0]), "not in one row: {pair:?}");
    }
    remembered
        .pop()
        .with_context(|| format!("runs of {SERVER}"))
}
