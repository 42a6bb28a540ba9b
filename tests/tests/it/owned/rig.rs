//! Gateways that share one Redis and one key, in front of a server whose connections live in one of them each.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};
use mooring_tests::client::HttpClient;
use mooring_tests::fixture::stdio_command;
use mooring_tests::fleet_keys::FleetKeys;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::journal::Journal;
use mooring_tests::process_tree::started_with;
use mooring_tests::redis::Redis;
use mooring_tests::session::{Exchange, McpSession};
use mooring_tests::wait;
use serde_json::{Value, json};

use crate::recovery::{call, count_of, mark_of, record, warned_of};

/// How long what ends may take to be gone. Nothing is asserted about speed.
pub(crate) const GONE_WITHIN: Duration = Duration::from_secs(40);
/// After its last beat a worker counts as alive for this long.
pub(crate) const BEAT_TTL_MS: u64 = 2_000;
const BEAT_INTERVAL_MS: u64 = 100;

/// What a fleet is configured with beyond what each has.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shape<'a> {
    /// Lines of the table `[affinity]`.
    pub(crate) affinity: &'a str,
    /// Lines of the table `[worker]`.
    pub(crate) worker: &'a str,
    /// How long a worker counts as alive after its last beat, if that is not [`BEAT_TTL_MS`].
    pub(crate) beat_ttl_ms: Option<u64>,
    /// Lines of the server `tools`.
    pub(crate) server: &'a str,
    /// Tables that follow.
    pub(crate) more: &'a str,
}

/// The settings of a fleet whose server `tools` is this: its `kind` and what that needs.
pub(crate) fn owned_toml(
    redis: &Redis,
    keys: &FleetKeys,
    tools: &str,
    shape: &Shape<'_>,
) -> String {
    let Shape {
        affinity,
        worker,
        beat_ttl_ms,
        server,
        more,
    } = shape;
    let beat_ttl_ms = beat_ttl_ms.unwrap_or(BEAT_TTL_MS);
    // The debug form of a URL is a TOML string: it has nothing to escape.
    format!(
        "[store]\nurl = {:?}\n\n[affinity]\nenabled = true\n{affinity}\n\n\
         [worker]\n{}beat_interval_ms = {BEAT_INTERVAL_MS}\n\
         beat_ttl_ms = {beat_ttl_ms}\n{worker}\n\n\
         [[servers]]\nid = \"tools\"\n{tools}\n{server}\n\n{more}",
        redis.url(),
        keys.toml(),
    )
}

/// The lines of a server that is started by this command.
pub(crate) fn stdio_toml(command: &[String]) -> String {
    format!("kind = \"stdio\"\ncommand = {command:?}\nstop_grace_ms = 500")
}

/// A name that no other test gives a server.
pub(crate) fn unique(name: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{name}-{}-{number}", std::process::id())
}

/// Gateways in front of the fixture on stdio.
pub(crate) struct OwnedFleet {
    pub(crate) gateways: Vec<Gateway>,
    pub(crate) redis: Redis,
    pub(crate) journal: Journal,
    pub(crate) client: HttpClient,
    instance: String,
    _keys: FleetKeys,
}

impl OwnedFleet {
    pub(crate) async fn start(count: usize) -> anyhow::Result<Self> {
        Self::start_as(count, &Shape::default()).await
    }

    pub(crate) async fn start_as(count: usize, shape: &Shape<'_>) -> anyhow::Result<Self> {
        let (redis, keys, journal) = (Redis::start().await?, FleetKeys::new()?, Journal::new()?);
        let instance = unique("owned");
        let command = stdio_command(&instance, Some(&journal), &[])?;
        let toml = owned_toml(&redis, &keys, &stdio_toml(&command), shape);
        let gateways = Gateway::fleet(count, &Settings::toml(toml)).await?;
        Ok(Self {
            gateways,
            redis,
            journal,
            client: HttpClient::default(),
            instance,
            _keys: keys,
        })
    }

    pub(crate) fn endpoint(&self, gateway: usize) -> String {
        self.gateways[gateway].mcp_url("tools")
    }

    pub(crate) fn endpoints(&self) -> Vec<String> {
        (0..self.gateways.len())
            .map(|at| self.endpoint(at))
            .collect()
    }

    pub(crate) fn endpoints_but(&self, without: usize) -> Vec<String> {
        let mut endpoints = self.endpoints();
        endpoints.remove(without);
        endpoints
    }

    /// A session whose requests go to every gateway in turn.
    pub(crate) async fn open(&self) -> anyhow::Result<McpSession> {
        McpSession::open(&self.client, &self.endpoints()).await
    }

    /// A session that this gateway owns, whose requests go to every gateway in turn.
    pub(crate) async fn open_at(&self, gateway: usize) -> anyhow::Result<McpSession> {
        let session = McpSession::open(&self.client, &[self.endpoint(gateway)]).await?;
        let session = session.fork(&self.client, &self.endpoints());
        ensure!(self.owner_of(&session)? == gateway, "who connects owns");
        Ok(session)
    }

    /// The same session through some gateways only.
    pub(crate) fn through(&self, session: &McpSession, gateways: &[usize]) -> McpSession {
        let endpoints: Vec<String> = gateways.iter().map(|at| self.endpoint(*at)).collect();
        session.fork(&self.client, &endpoints)
    }

    /// The gateway that owns the session's connection.
    pub(crate) fn owner_of(&self, session: &McpSession) -> anyhow::Result<usize> {
        owner_of(&self.redis, session)
    }

    /// The living processes of the server, whichever worker started them and whoever they belong to by now.
    pub(crate) fn children(&self) -> anyhow::Result<BTreeSet<u32>> {
        started_with(&self.instance)
    }

    pub(crate) fn only_child(&self) -> anyhow::Result<u32> {
        let children = self.children()?;
        ensure!(children.len() == 1, "one child: {children:?}");
        children.first().copied().context("a child")
    }

    /// Waits until this many processes of the server are left.
    pub(crate) async fn until_children(&self, count: usize) -> anyhow::Result<BTreeSet<u32>> {
        wait::until(&format!("{count} children"), GONE_WITHIN, async || {
            let children = self.children()?;
            Ok((children.len() == count).then_some(children))
        })
        .await
    }
}

/// The number of the gateway that owns the session's connection to `tools`.
pub(crate) fn owner_of(redis: &Redis, session: &McpSession) -> anyhow::Result<usize> {
    let record = record(redis, session)?;
    let bindings = record["bindings"].as_array().context("bindings")?;
    let binding = bindings.iter().find(|binding| binding["server"] == "tools");
    let owner = binding.and_then(|binding| binding["owner"].as_str());
    let name = owner.with_context(|| format!("an owner: {record}"))?;
    let number = name.trim_start_matches("gateway-").split(':').next();
    Ok(number.unwrap_or_default().parse::<usize>()? - 1)
}

/// The process that serves the session.
pub(crate) async fn pid_of(session: &mut McpSession) -> anyhow::Result<u32> {
    let result = session.call("whoami", json!({})).await?;
    let pid = result["structuredContent"]["pid"].as_u64();
    Ok(u32::try_from(
        pid.with_context(|| format!("a pid: {result}"))?,
    )?)
}

/// The code of a JSON-RPC error.
pub(crate) fn error_code(response: &Value) -> Option<i64> {
    response["error"]["code"].as_i64()
}

/// A call of `slow`, which the journal shows as it begins and ends.
pub(crate) fn slow(ms: u64, token: &str) -> Value {
    json!({"name": "slow", "arguments": {"ms": ms, "token": token}})
}

/// Calls that count one up, and asserts that they go on from `first` and that nothing was lost.
pub(crate) async fn goes_on(
    session: &mut McpSession,
    first: u64,
    calls: u64,
) -> anyhow::Result<()> {
    for expected in first..first + calls {
        let exchange = call(session, "increment").await?;
        assert_eq!(count_of(&exchange), Some(expected), "{exchange:?}");
        assert_eq!(mark_of(&exchange), None, "nothing was lost: {exchange:?}");
    }
    Ok(())
}

/// Asserts that a call was served by a new process, and that the client was told.
#[track_caller]
pub(crate) fn assert_begun_anew(exchange: &Exchange) {
    assert_eq!(count_of(exchange), Some(1), "{exchange:?}");
    let mark = mark_of(exchange);
    assert!(mark.is_some(), "the loss is told: {exchange:?}");
    let warned = warned_of(exchange);
    assert_eq!(
        warned.first().copied(),
        mark,
        "a warning comes first: {exchange:?}"
    );
}

/// Tells whoever runs the tests what a run measured.
#[expect(
    clippy::print_stderr,
    reason = "a figure for the reader of the test's output"
)]
pub(crate) fn tell(figure: &str) {
    eprintln!("{figure}");
}
