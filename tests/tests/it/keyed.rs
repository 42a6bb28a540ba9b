//! Gateways that hold connections for each other: one Redis, one file of keys, and servers of several kinds.

use mooring_tests::fleet_keys::FleetKeys;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::redis::Redis;
use mooring_tests::servers::{self, Server};

/// A fleet whose workers reach each other.
pub(crate) struct KeyedFleet {
    pub(crate) gateways: Vec<Gateway>,
    /// Dropped after the gateways, so that they stop in peace.
    _redis: Redis,
    _keys: FleetKeys,
}

impl KeyedFleet {
    /// Starts `count` gateways. `tables` is TOML that begins with a table of its own.
    pub(crate) async fn start(count: usize, tables: &str) -> anyhow::Result<Self> {
        let (redis, keys) = (Redis::start().await?, FleetKeys::new()?);
        let settings = keyed_settings(&redis, &keys, tables);
        let gateways = Gateway::fleet(count, &settings).await?;
        Ok(Self {
            gateways,
            _redis: redis,
            _keys: keys,
        })
    }

    /// The MCP endpoint of this server at each gateway, beginning with the gateway at `first`.
    pub(crate) fn endpoints(&self, server: &str, first: usize) -> Vec<String> {
        let mut endpoints: Vec<String> = self
            .gateways
            .iter()
            .map(|gateway| gateway.mcp_url(server))
            .collect();
        let count = endpoints.len();
        endpoints.rotate_left(first % count);
        endpoints
    }
}

/// Settings with this store and these keys, affinity on. `tables` is TOML that begins with a table of its own.
pub(crate) fn keyed_settings(redis: &Redis, keys: &FleetKeys, tables: &str) -> Settings {
    let (url, keys) = (redis.url(), keys.toml());
    // The debug form of a URL is a TOML string: it has nothing to escape.
    Settings::toml(format!(
        "[store]\nurl = {url:?}\n\n[affinity]\nenabled = true\n\n\
         [worker]\n{keys}\n{tables}\n"
    ))
}

/// The table of a server of kind `stdio`.
pub(crate) fn stdio_table(id: &str, command: &[String]) -> String {
    format!("[[servers]]\nid = {id:?}\nkind = \"stdio\"\ncommand = {command:?}\n")
}

/// The table of a server of kind `http` or `sse`.
pub(crate) fn instances_table(id: &str, kind: &str, instances: &[String]) -> String {
    format!("[[servers]]\nid = {id:?}\nkind = {kind:?}\ninstances = {instances:?}\n")
}

/// The kinds of servers whose sessions a gateway keeps, which are the ids of server-everything in [`Everything`].
pub(crate) const KINDS: [&str; 3] = ["http", "stdio", "sse"];

/// server-everything behind three gateways, once for each of the [`KINDS`].
pub(crate) struct Everything {
    pub(crate) fleet: KeyedFleet,
    _instances: [Server; 3],
}

impl Everything {
    pub(crate) async fn start() -> anyhow::Result<Self> {
        let (one, two, sse) = tokio::try_join!(
            Server::everything("a"),
            Server::everything("b"),
            Server::everything_sse("c")
        )?;
        let tables = [
            instances_table("http", "http", &[one.url(), two.url()]),
            instances_table("sse", "sse", &[sse.sse_url()]),
            stdio_table("stdio", &servers::everything_command()?),
        ];
        Ok(Self {
            fleet: KeyedFleet::start(3, &tables.concat()).await?,
            _instances: [one, two, sse],
        })
    }
}
