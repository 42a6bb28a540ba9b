//! Two gateways on one Redis, and servers whose connections live in one of them: what the parts `forward`, `turn` and
//! `child` measure.

use anyhow::Context;
use mooring_tests::fixture::stdio_command;
use mooring_tests::fleet_keys::FleetKeys;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::redis::{Module, Redis};
use tempfile::TempDir;

use crate::upstream::{self, Upstream};
use crate::wire::Target;

/// A child process of this program, without turns, so that nothing but the way differs.
pub(crate) const CHILD: &str = "/servers/child/mcp";
/// A child process of the fixture.
pub(crate) const FIXTURE: &str = "/servers/fixture/mcp";
/// The upstream with turns.
pub(crate) const SERIAL: &str = "/servers/serial/mcp";
/// The upstream without.
pub(crate) const PARALLEL: &str = "/servers/parallel/mcp";

/// The arrangement.
#[derive(Debug)]
pub(crate) struct Pair {
    gateways: Vec<Gateway>,
    _redis: Redis,
    _upstream: Upstream,
    _keys: FleetKeys,
}

impl Pair {
    pub(crate) async fn start(logs: &TempDir) -> anyhow::Result<Self> {
        let upstream = Upstream::start(logs.path()).await?;
        let arguments = ["--appendonly", "no", "--hash-max-listpack-value", "512"];
        let redis = Redis::start_with(Module::Loaded, &arguments)
            .await
            .context("start Redis")?;
        let keys = FleetKeys::new()?;
        let program = std::env::current_exe().context("find this program")?;
        let child = [program.display().to_string(), "child".to_owned()];
        let url = format!("http://127.0.0.1:{}{}", upstream.port(), upstream::PATH);
        // The debug forms of these are TOML: there is nothing to escape in them.
        let toml = format!(
            "[store]\nurl = {:?}\n\n[affinity]\nenabled = true\n\n[worker]\n{}\n\
             [[servers]]\nid = \"child\"\nkind = \"stdio\"\ncommand = {child:?}\nconcurrency = \"parallel\"\n\n\
             [[servers]]\nid = \"fixture\"\nkind = \"stdio\"\ncommand = {:?}\n\n\
             [[servers]]\nid = \"serial\"\nkind = \"http\"\ninstances = [{url:?}]\n\n\
             [[servers]]\nid = \"parallel\"\nkind = \"http\"\ninstances = [{url:?}]\nconcurrency = \"parallel\"\n",
            redis.url(),
            keys.toml(),
            stdio_command("bench", None, &[])?,
        );
        let gateways = Gateway::fleet(2, &Settings::toml(toml))
            .await
            .context("start the gateways")?;
        Ok(Self {
            gateways,
            _redis: redis,
            _upstream: upstream,
            _keys: keys,
        })
    }

    /// An endpoint at the first gateway, where sessions are opened: it owns their connections.
    pub(crate) fn owner(&self, path: &'static str) -> anyhow::Result<Target> {
        let owner = self.gateways.first().context("a gateway")?;
        Ok(Target::local(owner.port(), path))
    }

    /// The same endpoint at the other one.
    pub(crate) fn other(&self, path: &'static str) -> anyhow::Result<Target> {
        let other = self.gateways.last().context("a gateway")?;
        Ok(Target::local(other.port(), path))
    }
}
