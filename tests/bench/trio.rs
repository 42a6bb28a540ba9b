//! Three gateways on one Redis in front of one upstream: what the parts `changing`, `holder` and `sizing` measure, with
//! delegated turns and without.

use anyhow::Context;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::redis::Redis;

use crate::arrangement::{Delegation, GATEWAY_PATH, gateway_toml, start_redis};
use crate::cost::{Cost, StoreCost};
use crate::wire::Target;

const GATEWAYS: usize = 3;

/// The arrangement.
#[derive(Debug)]
pub(crate) struct Trio {
    pub(crate) delegation: Delegation,
    gateways: Vec<Gateway>,
    redis: Redis,
}

impl Trio {
    /// One with delegated turns and one without, where this build has both.
    pub(crate) async fn start_all(upstream_port: u16) -> anyhow::Result<Vec<Self>> {
        let mut trios = Vec::new();
        for delegation in Delegation::of_this_build()? {
            let redis = start_redis().await?;
            let toml = gateway_toml(&redis.url(), true, 1, &[upstream_port]);
            let settings = delegation.set(Settings::toml(toml));
            let gateways = Gateway::fleet(GATEWAYS, &settings)
                .await
                .context("start the gateways")?;
            trios.push(Self {
                delegation,
                gateways,
                redis,
            });
        }
        Ok(trios)
    }

    /// The endpoint of each gateway.
    pub(crate) fn targets(&self) -> Vec<Target> {
        let target = |gateway: &Gateway| Target::local(gateway.port(), GATEWAY_PATH);
        self.gateways.iter().map(target).collect()
    }

    /// What Redis has done so far.
    pub(crate) fn store_cost(&self) -> anyhow::Result<StoreCost> {
        StoreCost::of(&self.redis)
    }

    /// The CPU time of all gateways so far.
    pub(crate) fn gateway_cpu_seconds(&mut self) -> anyhow::Result<f64> {
        let mut seconds = 0.0;
        for gateway in &mut self.gateways {
            seconds += Cost::of(gateway.process().id())?.cpu_seconds;
        }
        Ok(seconds)
    }

    /// A gateway, to kill and start again.
    pub(crate) fn gateway(&mut self, number: usize) -> anyhow::Result<&mut Gateway> {
        self.gateways.get_mut(number).context("a gateway")
    }
}
