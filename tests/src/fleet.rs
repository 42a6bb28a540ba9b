//! The usual arrangement: gateways that share one Redis with the module, affinity on, one server `tools`.

use crate::gateway::{Gateway, Settings};
use crate::redis::Redis;

/// Several gateways and the Redis behind them.
#[derive(Debug)]
pub struct Fleet {
    /// The gateways, in the order of [`Fleet::endpoints`].
    pub gateways: Vec<Gateway>,
    /// Dropped after the gateways, so that they stop in peace.
    pub redis: Redis,
}

impl Fleet {
    /// Starts `count` gateways in front of these instances (full URLs).
    pub async fn start(count: usize, instances: &[String]) -> anyhow::Result<Self> {
        Self::start_with(count, instances, "").await
    }

    /// Starts with more TOML; it follows the table of the server `tools`.
    pub async fn start_with(
        count: usize,
        instances: &[String],
        more_toml: &str,
    ) -> anyhow::Result<Self> {
        let redis = Redis::start().await?;
        let toml = settings_toml(&redis.url(), instances) + more_toml;
        let gateways = Gateway::fleet(count, &Settings::toml(toml)).await?;
        Ok(Self { gateways, redis })
    }

    /// The MCP endpoint of `tools` on each gateway.
    #[must_use]
    pub fn endpoints(&self) -> Vec<String> {
        self.gateways
            .iter()
            .map(|gateway| gateway.mcp_url("tools"))
            .collect()
    }
}

/// A configuration with this store, affinity on, any number of new sessions a minute, and one server `tools` of kind
/// `http`. It ends inside the server's table.
#[must_use]
pub fn settings_toml(store_url: &str, instances: &[String]) -> String {
    // The debug form of a URL is a TOML string: neither has anything to escape.
    format!(
        "[store]\nurl = {store_url:?}\n\n[affinity]\nenabled = true\ninitializes_per_minute = 0\n\n\
         [[servers]]\nid = \"tools\"\nkind = \"http\"\ninstances = {instances:?}\n"
    )
}
