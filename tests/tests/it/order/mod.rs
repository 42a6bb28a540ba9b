//! Order over a fleet: tool calls of one session at one server run one after another, in the order of arrival, whichever
//! worker they arrive at.
//!
//! [`arrival`]: who runs when, and how many wait. [`questions`]: a call that waits for its client lets others go on.
//! [`withdrawn`]: calls that are wanted no more. [`deaths`]: workers that are killed in mid-call. [`commands`]: what a call
//! costs the store. [`delegated`]: calls that cost it nothing. Here is what they share.

mod arrival;
mod commands;
mod deaths;
mod delegated;
mod questions;
mod silent;
mod withdrawn;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use mooring_tests::client::{HttpClient, Reply};
use mooring_tests::fixture::{Fixture, stdio_command};
use mooring_tests::fleet_keys::FleetKeys;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::journal::{Event, Journal};
use mooring_tests::redis::Redis;
use mooring_tests::session::{Exchange, McpSession, read_exchange};
use mooring_tests::wait;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

/// How long something that is under way may take on a busy machine.
const SOON: Duration = Duration::from_secs(30);

/// The server behind HTTP whose calls have turns.
const HTTP: &str = "tools";
/// The same fixture without turns.
const PARALLEL: &str = "parallel";
/// A child process per session, whose calls have turns.
const STDIO: &str = "child";

/// Gateways on one Redis, and servers that write down what they run.
struct Scene {
    gateways: Vec<Gateway>,
    redis: Redis,
    journal: Journal,
    client: HttpClient,
    _fixture: Fixture,
    _keys: FleetKeys,
}

impl Scene {
    async fn start(count: usize) -> anyhow::Result<Self> {
        Self::start_as(count, |settings| settings).await
    }

    /// The same, and every call takes its turn from the store.
    async fn start_without_delegations(count: usize) -> anyhow::Result<Self> {
        Self::start_as(count, |settings| {
            settings.env("MOORING_AFFINITY_DELEGATION_MS", "0")
        })
        .await
    }

    async fn start_as(
        count: usize,
        adapt: impl FnOnce(Settings) -> Settings,
    ) -> anyhow::Result<Self> {
        let (redis, journal, keys) = (Redis::start().await?, Journal::new()?, FleetKeys::new()?);
        let path = journal.path().display().to_string();
        let fixture = Fixture::start_with("one", &["--journal", &path]).await?;
        let (url, store) = (fixture.url(), redis.url());
        let command = stdio_command("child", Some(&journal), &[])?;
        let toml = format!(
            "[store]\nurl = {store:?}\n\n[affinity]\nenabled = true\n\n\
             [worker]\nbeat_interval_ms = 100\nbeat_ttl_ms = 2000\nstop_patience_ms = 300\n{}\n\
             [[servers]]\nid = {HTTP:?}\nkind = \"http\"\ninstances = [{url:?}]\n\n\
             [[servers]]\nid = {PARALLEL:?}\nkind = \"http\"\ninstances = [{url:?}]\nconcurrency = \"parallel\"\n\n\
             [[servers]]\nid = {STDIO:?}\nkind = \"stdio\"\ncommand = {command:?}\n",
            keys.toml()
        );
        Ok(Self {
            gateways: Gateway::fleet(count, &adapt(Settings::toml(toml))).await?,
            redis,
            journal,
            client: HttpClient::new(SOON),
            _fixture: fixture,
            _keys: keys,
        })
    }

    /// A session that was opened at the first worker.
    async fn session(&self, server: &str) -> anyhow::Result<McpSession> {
        McpSession::open(&self.client, &[self.endpoint(server, 0)]).await
    }

    /// The endpoint of a server at one of the workers, counted round.
    fn endpoint(&self, server: &str, worker: usize) -> String {
        let worker = worker % self.gateways.len();
        self.gateways[worker].mcp_url(server)
    }

    /// The same session at one worker.
    fn at(&self, session: &McpSession, server: &str, worker: usize) -> McpSession {
        session.fork(&self.client, &[self.endpoint(server, worker)])
    }

    /// Makes a call at one worker, which may have to wait. Its request's id is `id`.
    fn begin(
        &self,
        session: &McpSession,
        server: &str,
        worker: usize,
        (id, tool, arguments): (u64, &str, Value),
    ) -> Begun {
        let mut session = self.at(session, server, worker);
        let params = json!({"name": tool, "arguments": arguments});
        let request = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
        Begun(tokio::spawn(async move {
            let reply = session.post(&request).await?;
            Ok((reply, request))
        }))
    }

    /// Has a call that does not end by itself run at a worker, so that everything after it waits.
    async fn hold(
        &self,
        session: &McpSession,
        server: &str,
        worker: usize,
    ) -> anyhow::Result<Begun> {
        let begun = self.journal.of(Event::Begin)?.len();
        let arguments = json!({"token": "held", "until": self.release_file()});
        let held = self.begin(session, server, worker, (HELD_ID, "slow", arguments));
        self.journal.wait_for(Event::Begin, begun + 1, SOON).await?;
        Ok(held)
    }

    /// Lets [`Scene::hold`]'s call end. It never overlaps with the next one; a cancelled call may, because it gives up its
    /// turn after a second, even if its server has not ended it.
    fn release(&self) -> anyhow::Result<()> {
        std::fs::write(self.release_file(), "").context("release the held call")
    }

    fn release_file(&self) -> PathBuf {
        self.journal.path().with_extension("release")
    }

    /// Says at a worker that a call is wanted no more.
    async fn cancel(
        &self,
        session: &McpSession,
        server: &str,
        worker: usize,
        id: u64,
    ) -> anyhow::Result<()> {
        let params = json!({"requestId": id, "reason": "not wanted"});
        let message =
            json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params});
        let reply = self.at(session, server, worker).post(&message).await?;
        assert_eq!(reply.status, 202);
        Ok(())
    }

    /// Waits until so many calls of the whole fleet wait for their turn.
    async fn until_waiting(&self, calls: u64) -> anyhow::Result<()> {
        let what = format!("{calls} calls in the queue");
        wait::until_true(&what, SOON, async || {
            let stats = self.redis.cli(&["-3", "--json", "SESSION.STATS"])?;
            let stats: Value = serde_json::from_str(&stats)?;
            Ok(stats["turn_waiters"].as_u64().context("a figure")? == calls)
        })
        .await
    }
}

/// The request id of [`Scene::hold`]'s call.
const HELD_ID: u64 = 900;

/// A call that was posted.
struct Begun(JoinHandle<anyhow::Result<(Reply, Value)>>);

impl Begun {
    /// The head of its reply, once it is there, and the request.
    async fn reply(self) -> anyhow::Result<(Reply, Value)> {
        self.0.await?
    }

    /// Its whole reply, which has to be a success.
    async fn answered(self) -> anyhow::Result<Exchange> {
        let (reply, request) = self.reply().await?;
        read_exchange(reply, &request).await
    }
}

/// A call of `slow`.
fn slow(id: u64, token: &str) -> (u64, &'static str, Value) {
    (id, "slow", json!({"ms": 5, "token": token}))
}
