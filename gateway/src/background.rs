//! What a worker does beside serving: it beats, keeps sessions in use alive, wakes waiting calls, and cleans up.
//!
//! Invariant: no request waits for any of it. A worker that is killed leaves nothing here that another does not do.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use metrics_exporter_prometheus::PrometheusHandle;
use mooring_session::names::Principal;
use mooring_session::rules::TouchRequest;
use mooring_session::workers::{Beat, Drain};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::http::App;
use mooring_code::reaper;
use mooring_code::server::{CodeServers, keep_records};
use mooring_router::affinity::{
    ActiveBindings, BeatTime, SessionRouter, reap, stop_idle_processes, sweep_owned, wake_waiters,
    watch_owners,
};
use mooring_settings::Settings;
use mooring_store::{Loss, SessionKey, StoreError};

/// Sessions with an open call or stream are kept alive this many times per TTL.
const KEEPS_PER_TTL: u32 = 8;
/// ... but no more often than this.
const KEEP_INTERVAL_MIN: Duration = Duration::from_millis(200);
/// How often an open call counts as a use where a cap ends what was not used for longest.
const CALL_NOTED_EVERY: Duration = Duration::from_secs(1);
/// How often recorded durations are folded into their histograms. Until then each of them is held, scraped or not.
const FOLD_INTERVAL: Duration = Duration::from_secs(5);
/// Most lost upstream sessions deleted at the same time: an instance that hangs must not hold up the rest.
const LOSSES_AT_ONCE: usize = 16;

/// How soon a beat that the store did not take is sent again: what this worker owns stands still until one is taken.
const BEAT_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// Starts all of it. It ends when the set is dropped.
pub(crate) fn start(
    app: &Arc<App>,
    settings: &Settings,
    beat: Beat,
    recorder: PrometheusHandle,
) -> JoinSet<()> {
    let session_router = &app.session_router;
    let session_ttl = settings.affinity.session_ttl;
    let mut tasks = JoinSet::new();
    let beat_interval = settings.worker.beat_interval;
    let stopping = app.relay.stopping.clone();
    tasks.spawn(keep_beating(
        session_router.clone(),
        beat,
        beat_interval,
        stopping,
    ));
    tasks.spawn(watch_owners(session_router.clone(), beat_interval));
    tasks.spawn(sweep_owned(session_router.clone()));
    tasks.spawn(stop_idle_processes(session_router.clone()));
    let code = app.code.as_ref().map(CodeServers::services);
    let shortest_ttl = code.map_or(session_ttl, |code| session_ttl.min(code.session_ttl_min));
    let keep_interval = shortest_ttl / KEEPS_PER_TTL;
    tasks.spawn(keep_alive(
        session_router.clone(),
        keep_interval,
        ActiveBindings::in_use,
    ));
    if settings.affinity.sessions_max.is_some() {
        tasks.spawn(keep_alive(
            session_router.clone(),
            CALL_NOTED_EVERY,
            ActiveBindings::in_call,
        ));
    }
    tasks.spawn(renew_params(session_router.clone(), session_ttl));
    tasks.spawn(wake_waiters(session_router.clone()));
    tasks.spawn(reap(
        session_router.clone(),
        settings.affinity.reap_interval,
    ));
    if let Some(code) = code {
        let interval = settings.affinity.reap_interval;
        tasks.spawn(reaper::reap(Arc::clone(code), interval));
        tasks.spawn(reaper::sweep(Arc::clone(code)));
        tasks.spawn(keep_records(Arc::clone(code), interval));
    }
    tasks.spawn(report_losses(Arc::clone(app)));
    tasks.spawn(fold_metrics(recorder));
    tasks
}

/// Tells the store once that this worker lives.
pub(crate) async fn announce(session_router: &SessionRouter, beat: &Beat) {
    if let Err(error) = tell(session_router, beat).await {
        tracing::warn!(%error, "the store did not take this worker's beat");
    }
}

/// One beat. What the store acknowledges lets this worker use what it owns for a while; after a pause in which others
/// may have taken it over, only when the store has been asked what is left.
async fn tell(session_router: &SessionRouter, beat: &Beat) -> Result<(), StoreError> {
    let sent = BeatTime::now();
    session_router.store().beat(beat).await?;
    let fence = session_router.owned_connections().fence();
    if fence.is_open() || session_router.close_connections_not_owned().await {
        fence.acknowledged(sent);
    }
    Ok(())
}

/// Beats until it is stopped; says that the worker drains once `stopping` is cancelled.
async fn keep_beating(
    session_router: SessionRouter,
    mut beat: Beat,
    interval: Duration,
    stopping: CancellationToken,
) {
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut was_taken = true;
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = stopping.cancelled(), if beat.drain == Drain::Serving => {
                // Told at once: what lives here is not to become more.
                beat.drain = Drain::Draining;
            }
        }
        match tell(&session_router, &beat).await {
            Ok(()) => was_taken = true,
            // One line for a whole outage: the store's own state is logged where it changes.
            Err(error) => {
                // One line for a whole outage: the store's own state is logged where it changes.
                if was_taken {
                    tracing::warn!(%error, "the store did not take this worker's beat");
                }
                was_taken = false;
                ticks.reset_after(interval.min(BEAT_AGAIN_AFTER));
            }
        }
    }
}

/// Sessions in use must not expire, however long a call of theirs takes, nor look unused to a cap.
async fn keep_alive(
    session_router: SessionRouter,
    interval: Duration,
    in_use: fn(&ActiveBindings) -> Vec<(SessionKey, Principal)>,
) {
    let mut ticks = tokio::time::interval(interval.max(KEEP_INTERVAL_MIN));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        for (key, principal) in in_use(session_router.active_bindings()) {
            let touch = TouchRequest {
                principal,
                ttl: None,
                content_hash: None,
                labels: std::collections::BTreeMap::new(),
                reported: None,
            };
            match session_router.store().touch(&key, &touch).await {
                Ok(_) | Err(StoreError::Refused(_)) => {}
                Err(error) => {
                    tracing::debug!(%error, "open sessions were not touched");
                    break;
                }
            }
        }
    }
}

/// The params of sessions in use must not lapse before the sessions do.
async fn renew_params(session_router: SessionRouter, session_ttl: Duration) {
    let mut ticks = tokio::time::interval((session_ttl / 2).max(KEEP_INTERVAL_MIN));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if let Err(error) = session_router.renew_params().await {
            tracing::debug!(%error, "initialize params were not renewed");
        }
    }
}

/// The recorder leaves this to its owner.
async fn fold_metrics(recorder: PrometheusHandle) {
    let mut ticks = tokio::time::interval(FOLD_INTERVAL);
    loop {
        ticks.tick().await;
        recorder.run_upkeep();
    }
}

/// Upstream sessions that lost against the store's answer when it returned are deleted, and their loss is logged.
async fn report_losses(app: Arc<App>) {
    let losses = app.session_router.store().losses();
    stream::unfold(losses, |losses| async {
        Some((losses.next().await?, losses))
    })
    .for_each_concurrent(LOSSES_AT_ONCE, |loss| report_loss(&app, loss))
    .await;
}

async fn report_loss(app: &App, loss: Loss) {
    tracing::warn!(
        session = %loss.key.digest(),
        server = %loss.server,
        instance = %loss.instance,
        "what this session did while the store was away is lost: the store's answer won"
    );
    if let (Some(server), Some(upstream_session)) =
        (app.servers.get(loss.server.as_str()), loss.upstream_session)
        && let Some(instance) = server.instance(&loss.instance)
    {
        app.session_router
            .delete_upstream(server, instance, upstream_session)
            .await;
    }
}
