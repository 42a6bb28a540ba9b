//! What chaos is done to: three gateways, two upstream instances, a program on stdio, a sandbox, and Redis that syncs its
//! append-only file at every write, so that a killed Redis has no excuse to forget.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{bail, ensure};
use mooring_tests::code::{CodeVolume, SERVER as SANDBOX};
use mooring_tests::fixture::{Fixture, stdio_command};
use mooring_tests::fleet_keys::FleetKeys;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::journal::{Event, Journal};
use mooring_tests::process_tree::started_with;
use mooring_tests::redis::{Module, Redis};
use mooring_tests::wait;

use super::client::{ChaosClient, ClientKind};
use crate::owned::rig::unique;

/// Gateways of the fleet.
const GATEWAYS: usize = 3;
/// The `http` server.
const TOOLS: &str = "tools";
/// The `stdio` server.
const PROGRAM: &str = "program";
/// How long it may take until nothing is left of the sessions: a DELETE that an instance did not answer is tried again by a
/// reaper after the 30 s that END gave its caller, one that it refused a minute after that, each found within 12 s.
const CLEAN_WITHIN: Duration = Duration::from_secs(180);
/// Keys that may stay: initialize params, rates and code sessions live by a time of their own.
const LASTING_KEYS: [&str; 5] = [
    "mcpgw:fleet",
    "mcpgw:init:",
    "mcpgw:rate:",
    "mcpgw:code_exec_session:",
    "mcpgw:session_history:",
];

/// The running parts.
pub(super) struct Arrangement {
    pub(super) gateways: Vec<Gateway>,
    pub(super) upstreams: Vec<Fixture>,
    pub(super) redis: Redis,
    journal: Journal,
    program: String,
    volume: CodeVolume,
    _keys: FleetKeys,
}

impl Arrangement {
    pub(super) async fn start() -> anyhow::Result<Self> {
        let redis = Redis::start_with(Module::Loaded, &["--appendfsync", "always"]).await?;
        let (keys, journal, volume) = (FleetKeys::new()?, Journal::new()?, CodeVolume::new()?);
        let journal_path = journal.path().display().to_string();
        let mut upstreams = Vec::new();
        for instance in ["a", "b"] {
            let arguments = ["--journal", &journal_path];
            upstreams.push(Fixture::start_with(instance, &arguments).await?);
        }
        let urls: Vec<String> = upstreams.iter().map(Fixture::url).collect();
        let program = unique("chaos");
        let command = stdio_command(&program, Some(&journal), &[])?;
        let toml = format!(
            "[store]\nurl = {:?}\n\n[affinity]\nenabled = true\n\n\
             [worker]\n{}\
             [[servers]]\nid = {TOOLS:?}\nkind = \"http\"\ninstances = {urls:?}\n\n\
             [[servers]]\nid = {PROGRAM:?}\nkind = \"stdio\"\ncommand = {command:?}\n\n\
             [[servers]]\nid = {SANDBOX:?}\nkind = \"code\"\nallow = [{{}}]\n\
             sandbox_policy = {{ max_runs_per_minute = 1000 }}\n",
            redis.url(),
            keys.toml(),
        );
        let settings = Settings::toml(toml)
            .env(
                "MOORING_CODE_BASE_DIR",
                &volume.path().display().to_string(),
            )
            .users_by_header();
        Ok(Self {
            gateways: Gateway::fleet(GATEWAYS, &settings).await?,
            upstreams,
            redis,
            journal,
            program,
            volume,
            _keys: keys,
        })
    }

    /// The endpoints of a kind, each client beginning at another one.
    pub(super) fn endpoints(&self, kind: ClientKind, client: usize) -> Vec<String> {
        let server = match kind {
            ClientKind::Http => TOOLS,
            ClientKind::Stdio => PROGRAM,
            ClientKind::Code => SANDBOX,
        };
        let mut endpoints: Vec<String> = self.gateways.iter().map(|g| g.mcp_url(server)).collect();
        endpoints.rotate_left(client % GATEWAYS);
        endpoints
    }

    /// No call ran twice, and every one that was answered ran.
    pub(super) fn check_tokens(&self, clients: &[ChaosClient]) -> anyhow::Result<()> {
        let mut begun: BTreeMap<String, usize> = BTreeMap::new();
        for token in self.journal.tokens_of(Event::Begin)? {
            *begun.entry(token).or_default() += 1;
        }
        let twice: Vec<_> = begun.iter().filter(|(_, count)| **count > 1).collect();
        ensure!(twice.is_empty(), "calls that ran twice: {twice:?}");
        for token in clients.iter().flat_map(ChaosClient::answered_tokens) {
            ensure!(
                begun.contains_key(token),
                "{token} was answered and never ran"
            );
        }
        Ok(())
    }

    /// Neither keys of ended sessions, nor child processes, nor directories of nobody.
    pub(super) async fn check_nothing_left(self, code_sessions: usize) -> anyhow::Result<()> {
        wait::until_true("no child process to be left", CLEAN_WITHIN, async || {
            Ok(started_with(&self.program)?.is_empty())
        })
        .await?;
        let mut left = Vec::new();
        let cleaned = wait::until_true("no key to be left", CLEAN_WITHIN, async || {
            let keys = self.redis.cli(&["--scan", "--pattern", "*"])?;
            left = keys.lines().map(str::to_owned).collect();
            left.retain(|key| !LASTING_KEYS.iter().any(|lasting| key.starts_with(lasting)));
            Ok(left.is_empty())
        })
        .await;
        if cleaned.is_err() {
            let records = left.iter().map(|key| self.redis.cli(&["HGETALL", key]));
            let records: Vec<_> = records.collect::<Result<_, _>>()?;
            bail!("keys that are left: {left:?}: {records:#?}");
        }
        let directories = self.volume.sessions()?;
        ensure!(directories.len() == code_sessions, "{directories:?}");
        let orphans = self.volume.orphan_files()?;
        ensure!(orphans.is_empty(), "{orphans:?}");
        Ok(())
    }
}
