//! The faults: one at a time, each lifted before the next one begins.

use std::ops::Range;
use std::time::{Duration, Instant};

use super::arrangement::Arrangement;

/// The longest pause between two faults, in milliseconds: some come before the fleet has recovered.
const PAUSE_MS: Range<u64> = 200..3_000;
/// How long a process is frozen or away, in milliseconds.
const AWAY_MS: Range<u64> = 100..2_500;

/// What is done to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FaultKind {
    /// A gateway is killed and started again.
    GatewayKilled,
    /// A gateway is stopped by SIGTERM and started again.
    GatewayRestarted,
    /// A gateway is frozen for a while.
    GatewayFrozen,
    /// An upstream instance is killed and started again.
    UpstreamKilled,
    /// An upstream instance is frozen for a while.
    UpstreamFrozen,
    /// Redis is killed and started again.
    RedisKilled,
    /// Redis is frozen for a while.
    RedisFrozen,
}

/// Every kind.
pub(super) const FAULT_KINDS: [FaultKind; 7] = [
    FaultKind::GatewayKilled,
    FaultKind::GatewayRestarted,
    FaultKind::GatewayFrozen,
    FaultKind::UpstreamKilled,
    FaultKind::UpstreamFrozen,
    FaultKind::RedisKilled,
    FaultKind::RedisFrozen,
];

/// A fault that was injected.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fault {
    pub(super) kind: FaultKind,
    pub(super) began: Instant,
    /// When the process was there again.
    pub(super) lifted: Instant,
}

/// Injects every kind of fault once per round, in random order.
pub(super) async fn inject(
    arrangement: &mut Arrangement,
    random: &mut fastrand::Rng,
    rounds: usize,
) -> anyhow::Result<Vec<Fault>> {
    let mut faults = Vec::new();
    for _ in 0..rounds {
        let mut kinds = FAULT_KINDS;
        random.shuffle(&mut kinds);
        for kind in kinds {
            tokio::time::sleep(Duration::from_millis(random.u64(PAUSE_MS))).await;
            let away = Duration::from_millis(random.u64(AWAY_MS));
            let began = Instant::now();
            inject_one(arrangement, kind, random.usize(..), away).await?;
            let lifted = Instant::now();
            faults.push(Fault {
                kind,
                began,
                lifted,
            });
        }
    }
    Ok(faults)
}

async fn inject_one(
    arrangement: &mut Arrangement,
    kind: FaultKind,
    victim: usize,
    away: Duration,
) -> anyhow::Result<()> {
    let Arrangement {
        gateways,
        upstreams,
        redis,
        ..
    } = arrangement;
    let victim_gateway = victim % gateways.len();
    let gateway = &mut gateways[victim_gateway];
    let victim_upstream = victim % upstreams.len();
    let upstream = &mut upstreams[victim_upstream];
    match kind {
        FaultKind::GatewayKilled => gateway.restart().await,
        FaultKind::GatewayRestarted => {
            // A run of code may keep it longer than this waits: then it is killed.
            let _ = gateway.process().terminate().await;
            gateway.restart().await
        }
        FaultKind::GatewayFrozen => {
            gateway.process().stop()?;
            tokio::time::sleep(away).await;
            gateway.process().cont()
        }
        FaultKind::UpstreamKilled => {
            upstream.process().kill_now()?;
            tokio::time::sleep(away).await;
            upstream.restart().await
        }
        FaultKind::UpstreamFrozen => {
            upstream.process().stop()?;
            tokio::time::sleep(away).await;
            upstream.process().cont()
        }
        FaultKind::RedisKilled => {
            redis.process().kill_now()?;
            tokio::time::sleep(away).await;
            redis.restart().await
        }
        FaultKind::RedisFrozen => {
            redis.process().stop()?;
            tokio::time::sleep(away).await;
            redis.process().cont()
        }
    }
}
