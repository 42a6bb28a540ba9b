//! Redis goes away: who owns a connection stops driving it before others could take it over, and nothing is taken over by
//! guessing; sessions over HTTP are served meanwhile.

use std::time::Duration;

use mooring_tests::fixture::Fixture;
use mooring_tests::session::McpSession;
use mooring_tests::wait;
use serde_json::Value;

use crate::recovery::{attempt, rebinds};
use crate::store_away::{Outage, until_all};

use super::rig::{BEAT_TTL_MS, OwnedFleet, Shape, goes_on};

/// For an owner to notice that the store is away.
const FENCED_WITHIN: Duration = Duration::from_secs(60);
const RETURNED_WITHIN: Duration = Duration::from_secs(60);

/// Waits until the store counts every gateway as alive again.
async fn until_alive(fleet: &OwnedFleet) -> anyhow::Result<()> {
    wait::until_true("every worker to be alive", RETURNED_WITHIN, async || {
        let listed = fleet.redis.cli(&["-3", "--json", "WORKER.LIST"])?;
        let workers: Vec<Value> = serde_json::from_str(&listed)?;
        let alive = workers
            .iter()
            .filter(|worker| worker["alive"] == 1 || worker["alive"] == true);
        Ok(alive.count() == fleet.gateways.len())
    })
    .await
}

async fn check(outage: Outage, away_for: Duration) -> anyhow::Result<()> {
    let web = Fixture::start("web").await?;
    let more = format!(
        "[[servers]]\nid = \"web\"\nkind = \"http\"\ninstances = [{:?}]\n",
        web.url()
    );
    let shape = Shape {
        more: &more,
        ..Shape::default()
    };
    let mut fleet = OwnedFleet::start_as(2, &shape).await?;
    let mut owned = fleet.open_at(0).await?;
    goes_on(&mut owned, 1, 2).await?;
    let child = fleet.only_child()?;
    let web_endpoint = [fleet.gateways[0].mcp_url("web")];
    let mut kept = McpSession::open(&fleet.client, &web_endpoint).await?;
    assert_eq!(kept.increment().await?, 1);

    outage.begin(&mut fleet.redis)?;
    until_all(&fleet.gateways, "degraded").await?;
    // Until the fence falls the owner may go on; then it refuses, and so does everybody else.
    let mut counted = 2;
    let mut at_owner = fleet.through(&owned, &[0]);
    let refused = wait::until("the fence", FENCED_WITHIN, async || {
        let answered = attempt(&mut at_owner, "increment").await?;
        if answered.status == 200 {
            counted += 1;
            assert_eq!(answered.count(), counted, "the same child: {answered:?}");
            return Ok(None);
        }
        Ok(Some(answered))
    })
    .await?;
    refused.assert_try_again();
    let served = attempt(&mut kept, "increment").await?;
    assert!(served.count() == 2 && served.is_degraded, "{served:?}");

    tokio::time::sleep(away_for).await;
    for gateway in [0, 1] {
        let refused = attempt(&mut fleet.through(&owned, &[gateway]), "increment").await?;
        refused.assert_try_again();
    }
    assert_eq!(
        fleet.only_child()?,
        child,
        "nothing is taken over by guessing"
    );
    assert_eq!(attempt(&mut kept, "increment").await?.count(), 3);

    outage.end(&mut fleet.redis).await?;
    until_all(&fleet.gateways, "ok").await?;
    until_alive(&fleet).await?;
    goes_on(&mut owned, counted + 1, 4).await?;
    assert_eq!(fleet.only_child()?, child);
    assert_eq!(rebinds(&fleet.gateways, "owner").await?, 0);
    Ok(())
}

#[tokio::test]
async fn a_short_outage_leaves_the_same_child_with_its_state() -> anyhow::Result<()> {
    check(Outage::Killed, Duration::ZERO).await
}

/// Far longer than any beat lasts.
#[tokio::test]
async fn a_long_outage_moves_nothing() -> anyhow::Result<()> {
    check(Outage::Hanging, Duration::from_millis(3 * BEAT_TTL_MS)).await
}

/// Nobody may take the connection over while the owner's last beat holds, so the owner serves it, also for its peers.
#[tokio::test]
async fn an_owner_serves_its_sessions_while_redis_is_away_for_a_moment() -> anyhow::Result<()> {
    let shape = Shape {
        beat_ttl_ms: Some(600_000),
        ..Shape::default()
    };
    let mut fleet = OwnedFleet::start_as(2, &shape).await?;
    let mut owned = fleet.open_at(0).await?;
    // Through both gateways, which know the session from then on.
    goes_on(&mut owned, 1, 4).await?;
    let child = fleet.only_child()?;

    Outage::Killed.begin(&mut fleet.redis)?;
    until_all(&fleet.gateways, "degraded").await?;
    for expected in 5..9 {
        let served = attempt(&mut owned, "increment").await?;
        assert_eq!(served.status, 200, "{served:?}");
        assert!(served.is_degraded, "{served:?}");
        assert_eq!(served.count(), expected, "{served:?}");
    }

    Outage::Killed.end(&mut fleet.redis).await?;
    until_all(&fleet.gateways, "ok").await?;
    goes_on(&mut owned, 9, 4).await?;
    assert_eq!(fleet.only_child()?, child);
    assert_eq!(rebinds(&fleet.gateways, "owner").await?, 0);
    Ok(())
}
