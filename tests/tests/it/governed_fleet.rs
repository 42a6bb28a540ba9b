//! A code server and other servers behind three gateways, which share a store, a volume and keys.

use mooring_tests::code::{CodeVolume, SERVER};
use mooring_tests::fleet_keys::FleetKeys;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::paths;
use mooring_tests::redis::Redis;

use crate::keyed::keyed_settings;

/// Three gateways with a code server; users are named by [`mooring_tests::code::USER`].
pub(crate) struct GovernedFleet {
    pub(crate) gateways: Vec<Gateway>,
    pub(crate) volume: CodeVolume,
    _redis: Redis,
    _keys: FleetKeys,
}

impl GovernedFleet {
    /// `tables` is TOML of the other servers, `of_code` what the code server says besides its id and kind.
    pub(crate) async fn start(
        tables: &str,
        of_code: &str,
        change: impl FnOnce(Settings) -> Settings,
    ) -> anyhow::Result<Self> {
        let (redis, keys, volume) = (Redis::start().await?, FleetKeys::new()?, CodeVolume::new()?);
        let code =
            format!("[[servers]]\nid = {SERVER:?}\nkind = \"code\"\nallow = [{{}}]\n{of_code}\n");
        let settings = keyed_settings(&redis, &keys, &format!("{tables}\n{code}"))
            .env(
                "MOORING_CODE_BASE_DIR",
                &volume.path().display().to_string(),
            )
            .env("MOORING_CODE_DEFAULT_MAX_RUNS_PER_MINUTE", "1000")
            .env(
                "MOORING_CODE_DENO_PATH",
                &paths::tool("deno")?.display().to_string(),
            )
            .users_by_header();
        let gateways = Gateway::fleet(3, &change(settings)).await?;
        Ok(Self {
            gateways,
            volume,
            _redis: redis,
            _keys: keys,
        })
    }
}
