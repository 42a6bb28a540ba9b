//! Maintains the records of the fleet: ends those of runs that died with their gateway, and removes old ones.
//!
//! Invariant: while the store is away no run is given up, and what was seen of living gateways before does not count.

use std::time::{Duration, Instant};

use mooring_session::names::{ServerName, WorkerId};
use tokio::task::spawn_blocking;

use super::Records;
use super::lost::{OrphanedRuns, RunMark};
use super::prune::PruneOutcome;
use mooring_metrics as metrics;
use mooring_store::{Store, jittered, unix_now_ms};

/// How long a gateway has to be missing before its runs are given up.
const MISSED_MIN: Duration = Duration::from_secs(5);
/// How often this gateway looks whether pruning is due.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);

/// Looks after the records of these servers until it is stopped. The pauses between two passes are `interval`, give or
/// take a quarter.
pub(crate) async fn keep(
    records: &Records,
    servers: &[ServerName],
    store: &Store,
    interval: Duration,
) {
    let mut orphans = OrphanedRuns::default();
    let mut looked_at: Option<Instant> = None;
    loop {
        tokio::time::sleep(jittered(interval)).await;
        orphans = end_lost(records, servers, store, orphans).await;
        if looked_at.is_none_or(|at| at.elapsed() >= LOOK_INTERVAL) {
            looked_at = Some(Instant::now());
            prune(records, servers).await;
        }
    }
}

/// The gateways whose last beat still holds; none while the store is away: what memory says is not the fleet's.
async fn live_gateways(store: &Store) -> Option<Vec<WorkerId>> {
    let was_degraded = store.is_degraded();
    let gateways = store.workers().await.ok()?;
    if was_degraded || store.is_degraded() {
        return None;
    }
    let living = gateways.into_iter().filter(|gateway| gateway.alive);
    Some(living.map(|gateway| gateway.worker).collect())
}

async fn end_lost(
    records: &Records,
    servers: &[ServerName],
    store: &Store,
    mut orphans: OrphanedRuns,
) -> OrphanedRuns {
    let looked = {
        let (records, servers) = (records.clone(), servers.to_owned());
        spawn_blocking(move || marks(&records, servers)).await
    };
    let Ok(marks) = looked else { return orphans };
    if marks.iter().all(|(_, marks)| marks.is_empty()) {
        orphans.forget();
        return orphans;
    }
    let Some(live) = live_gateways(store).await else {
        orphans.forget();
        return orphans;
    };
    let records = records.clone();
    let ended = spawn_blocking(move || {
        for (server, marks) in &marks {
            match records.end_lost(server, marks, &live, &mut orphans, MISSED_MIN) {
                Ok(0) => {}
                Ok(count) => {
                    metrics::code_runs_lost(count);
                    tracing::warn!(%server, count, "runs of a dead gateway marked as lost");
                }
                Err(error) => tracing::warn!(%server, %error, "lost-run scan failed"),
            }
        }
        orphans
    });
    ended.await.unwrap_or_default()
}

fn marks(records: &Records, servers: Vec<ServerName>) -> Vec<(ServerName, Vec<RunMark>)> {
    let of = |server: ServerName| match records.running(&server) {
        Ok(marks) => Some((server, marks)),
        Err(error) => {
            tracing::warn!(%server, %error, "lost-run scan failed");
            None
        }
    };
    servers.into_iter().filter_map(of).collect()
}

async fn prune(records: &Records, servers: &[ServerName]) {
    for server in servers {
        let (records, of) = (records.clone(), server.clone());
        let pruned = spawn_blocking(move || {
            let now_ms = unix_now_ms();
            match records.is_prune_due(&of, now_ms)? {
                true => records.prune(&of, now_ms),
                false => Ok(PruneOutcome::default()),
            }
        })
        .await;
        match pruned {
            Ok(Ok(pruned)) => metrics::code_records_pruned(pruned.runs, pruned.events),
            Ok(Err(error)) => tracing::warn!(%server, %error, "pruning run records failed"),
            Err(error) => tracing::error!(%server, %error, "record pruning task failed"),
        }
    }
}
