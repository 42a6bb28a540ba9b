//! Gateways that forward to each other, with a proxy in between that repeats, swaps and delays what the owner answers.
//!
//! What passes is encrypted, so the proxy knows records, and no reply begins where it wants.

use std::time::Duration;

use mooring_tests::client::HttpClient;
use mooring_tests::fleet_keys::FleetKeys;
use mooring_tests::gateway::Gateway;
use mooring_tests::port::free_port;
use mooring_tests::redis::Redis;
use mooring_tests::reply_proxy::{Fault, ReplyProxy};
use tempfile::TempDir;

use super::attack::{Attack, LONG, SHORT, Texts, call_repeatedly, open};
use super::duplex::stdio_command;
use crate::keyed::{keyed_settings, stdio_table};

/// A gateway that owns all connections, and one that is asked.
struct Scene {
    owner: Gateway,
    asked: Gateway,
    proxy: ReplyProxy,
    _redis: Redis,
    _keys: FleetKeys,
    _directory: TempDir,
}

impl Scene {
    async fn start() -> anyhow::Result<Self> {
        let (redis, keys, directory) = (Redis::start().await?, FleetKeys::new()?, TempDir::new()?);
        let table = stdio_table("tools", &stdio_command(&[], directory.path())?);
        let settings = keyed_settings(&redis, &keys, &table).users_by_header();
        let port = free_port()?;
        let proxy = ReplyProxy::before_tls(port).await?;
        let behind_proxy = settings
            .clone()
            .env("MOORING_WORKER_PEER_LISTEN", &format!("127.0.0.1:{port}"))
            .env("MOORING_WORKER_PEER_ADVERTISE", &proxy.address());
        Ok(Self {
            owner: Gateway::start("owner", behind_proxy).await?,
            asked: Gateway::start("asked", settings).await?,
            proxy,
            _redis: redis,
            _keys: keys,
            _directory: directory,
        })
    }

    async fn attack(&self, fault: Fault, lasts: Duration) -> anyhow::Result<()> {
        self.proxy.spoil(Some(fault));
        let count = self.proxy.count_spoiled();
        let attack = Attack::begin(format!("{fault:?}"), lasts, count);
        attack
            .run(|user, number| {
                let (owner, asked) = (self.owner.mcp_url("tools"), self.asked.mcp_url("tools"));
                let attack = attack.clone();
                async move {
                    let client = HttpClient::default();
                    let session = open(&client, &owner, user).await?;
                    let session = session.fork(&client, &[asked]);
                    call_repeatedly(session, "echo", Texts::new(user, number), &attack).await
                }
            })
            .await
    }
}

const ALL: [Fault; 3] = [Fault::Doubled, Fault::Swapped, Fault::Delayed];

#[tokio::test]
async fn replies_that_are_repeated_or_swapped_between_gateways_reach_nobody() -> anyhow::Result<()>
{
    let scene = Scene::start().await?;
    for fault in ALL {
        scene.attack(fault, SHORT).await?;
    }
    Ok(())
}

#[tokio::test]
#[ignore = "soak"]
async fn soak_no_fault_between_gateways_gives_anybody_a_foreign_reply() -> anyhow::Result<()> {
    let scene = Scene::start().await?;
    for fault in ALL {
        scene.attack(fault, LONG).await?;
    }
    Ok(())
}
