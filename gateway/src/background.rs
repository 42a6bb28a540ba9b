//! The background tasks of a gateway: heartbeats, what operators want, keeping sessions in use alive, waking waiting
//! calls, cleaning up.
//!
//! Invariant: no request waits for any of it. If this gateway is killed, another one does the same work.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use metrics_exporter_prometheus::PrometheusHandle;
use mooring_session::names::Principal;
use mooring_session::rules::TouchRequest;
use mooring_session::workers::{Beat, Drain};
use tokio::task::JoinSet;

use crate::http::CurrentApp;
use mooring_code::server::CodeServers;
use mooring_router::DeparturePhase;
use mooring_router::affinity::{
    ActiveBindings, BeatTime, SessionRouter, follow_operators, hand_over_owned, probe_instances,
    publish_requests, reap, stop_idle_processes, sweep_owned, wake_waiters, watch_owners,
};
use mooring_settings::Settings;
use mooring_store::{Loss, SessionKey, StoreError};
use mooring_upstream::Caller;

/// A session with an open call or stream is touched this many times per TTL.
const KEEPS_PER_TTL: u32 = 8;
/// Shortest interval between these touches.
const KEEP_INTERVAL_MIN: Duration = Duration::from_millis(200);
/// How often an open call counts as a use where the session cap evicts the least recently used session.
const CALL_NOTED_EVERY: Duration = Duration::from_secs(1);
/// How often it is looked whether a reload has set a limit for which uses have to be noted.
const LOOKED_AGAIN_EVERY: Duration = Duration::from_secs(1);
/// How often recorded durations are folded into their histograms. Until then every sample stays in memory, scraped or
/// not: at 30,000 calls a second, 3 MB for each second.
const FOLD_INTERVAL: Duration = Duration::from_secs(1);
/// Most lost upstream sessions deleted concurrently: an unresponsive instance must not delay the others.
const LOSSES_AT_ONCE: usize = 16;

/// Longest pause before a failed heartbeat is repeated. After a failure, owned connections stay unusable until one
/// succeeds.
const BEAT_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// Starts all background tasks. They end when the set is dropped.
pub(crate) fn start(
    current: &Arc<CurrentApp>,
    settings: &Settings,
    beat: Beat,
    recorder: PrometheusHandle,
) -> JoinSet<()> {
    let app = &current.get().app;
    let session_router = &app.core.session_router;
    let session_ttl = settings.affinity.session_ttl;
    let mut tasks = JoinSet::new();
    let beat_interval = settings.worker.beat_interval;
    tasks.spawn(keep_beating(session_router.clone(), beat, beat_interval));
    tasks.spawn(session_router.store().clone().follow_desired_state());
    let leave = settings.worker.leave;
    tasks.spawn(follow_operators(session_router.clone(), leave));
    tasks.spawn(hand_over_owned(session_router.clone()));
    tasks.spawn(watch_owners(session_router.clone(), beat_interval));
    tasks.spawn(sweep_owned(session_router.clone()));
    tasks.spawn(stop_idle_processes(session_router.clone()));
    let served = Arc::clone(current);
    let keep_interval = move || {
        let app = &served.get().app;
        let code = app.directory.code.as_ref().map(CodeServers::services);
        let shortest_ttl = code.map_or(session_ttl, |code| session_ttl.min(code.session_ttl_min));
        Some(shortest_ttl / KEEPS_PER_TTL)
    };
    tasks.spawn(keep_alive(
        session_router.clone(),
        keep_interval,
        ActiveBindings::in_use,
    ));
    let limited = session_router.clone();
    let call_interval = move || {
        let is_limited = limited.session_limits().sessions_max.is_some();
        is_limited.then_some(CALL_NOTED_EVERY)
    };
    tasks.spawn(keep_alive(
        session_router.clone(),
        call_interval,
        ActiveBindings::in_call,
    ));
    let probe_interval = settings.upstream.probe_interval;
    if !probe_interval.is_zero() {
        tasks.spawn(probe_instances(session_router.clone(), probe_interval));
    }
    tasks.spawn(publish_requests(session_router.clone()));
    tasks.spawn(renew_params(session_router.clone(), session_ttl));
    tasks.spawn(keep_history(session_router.clone()));
    tasks.spawn(wake_waiters(session_router.clone()));
    tasks.spawn(reap(
        session_router.clone(),
        settings.affinity.reap_interval,
    ));
    tasks.spawn(report_losses(session_router.clone()));
    if let Some(vault) = app.vault.clone() {
        tasks.spawn(async move { vault.keep_keys().await });
    }
    tasks.spawn(fold_metrics(recorder));
    tasks
}

/// Sends the first heartbeat, and reads what operators want of the fleet.
pub(crate) async fn announce(session_router: &SessionRouter, beat: &Beat) {
    if let Err(error) = send_beat(session_router, beat).await {
        tracing::warn!(%error, "heartbeat not stored");
    }
    if let Err(error) = session_router.store().refresh_desired_state().await {
        tracing::warn!(%error, "desired state not read");
    }
    session_router.apply_parking();
}

/// Sends one heartbeat. A success opens the fence: for a while this gateway may use the connections that it owns. After
/// a pause in which others may have taken them over, the connections that it lost are closed first.
async fn send_beat(session_router: &SessionRouter, beat: &Beat) -> Result<(), StoreError> {
    let sent = BeatTime::now();
    session_router.beat(beat).await?;
    let fence = session_router.owned_connections().fence();
    if fence.is_open() || session_router.close_connections_not_owned().await {
        fence.acknowledged(sent);
    }
    Ok(())
}

/// Sends heartbeats until the task is dropped. They report this gateway as draining while it does.
async fn keep_beating(session_router: SessionRouter, mut beat: Beat, interval: Duration) {
    let mut departure = session_router.departure().watch();
    // It may have begun before.
    departure.mark_changed();
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut was_taken = true;
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            // Sent immediately, so that no new bindings are made to a gateway that drains. The sender lives in the router.
            Ok(()) = departure.changed() => note_departure(&session_router, *departure.borrow_and_update(), &mut beat),
        }
        match send_beat(&session_router, &beat).await {
            Ok(()) => was_taken = true,
            Err(error) => {
                // One line per outage: changes of the store's state are logged elsewhere.
                match &error {
                    StoreError::Refused(refusal) if was_taken => tracing::error!(
                        %refusal,
                        worker = %beat.worker,
                        "heartbeat refused: this gateway is not ready until no other process uses its worker.name"
                    ),
                    _ if was_taken => tracing::warn!(%error, "heartbeat not stored"),
                    _ => {}
                }
                was_taken = false;
                ticks.reset_after(interval.min(BEAT_AGAIN_AFTER));
            }
        }
    }
}

/// Changes the heartbeat where the gateway begins or ends to drain.
fn note_departure(session_router: &SessionRouter, phase: DeparturePhase, beat: &mut Beat) {
    let drain = match phase {
        DeparturePhase::Serving | DeparturePhase::Leaving => Drain::Serving,
        DeparturePhase::Draining => Drain::Draining,
    };
    match (std::mem::replace(&mut beat.drain, drain), drain) {
        (Drain::Serving, Drain::Draining) => session_router.stop_delegations(),
        (Drain::Draining, Drain::Serving) => session_router.resume_delegations(),
        _ => {}
    }
}

/// Touches sessions in use, so that they neither expire during a long call nor look unused to the session cap. Nothing is
/// touched while there is no interval.
async fn keep_alive(
    session_router: SessionRouter,
    interval: impl Fn() -> Option<Duration>,
    in_use: fn(&ActiveBindings) -> Vec<(SessionKey, Principal)>,
) {
    loop {
        let Some(interval) = interval() else {
            tokio::time::sleep(LOOKED_AGAIN_EVERY).await;
            continue;
        };
        tokio::time::sleep(interval.max(KEEP_INTERVAL_MIN)).await;
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
                    tracing::debug!(%error, "sessions in use were not touched");
                    break;
                }
            }
        }
    }
}

/// Renews the initialize params and histories of sessions in use, so that they do not expire before their sessions.
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

/// Writes what is noted of sessions.
async fn keep_history(session_router: SessionRouter) {
    let gateway = session_router.worker();
    session_router.store().keep_history(gateway).await;
}

/// Folds samples into histograms, which the recorder leaves to its owner.
async fn fold_metrics(recorder: PrometheusHandle) {
    let mut ticks = tokio::time::interval(FOLD_INTERVAL);
    loop {
        ticks.tick().await;
        recorder.run_upkeep();
    }
}

/// Deletes upstream sessions that were made while the store was away and lost to the store's own state, and logs each
/// loss.
async fn report_losses(session_router: SessionRouter) {
    let losses = session_router.store().losses();
    stream::unfold(losses, |losses| async {
        Some((losses.next().await?, losses))
    })
    .for_each_concurrent(LOSSES_AT_ONCE, |loss| report_loss(&session_router, loss))
    .await;
}

async fn report_loss(session_router: &SessionRouter, loss: Loss) {
    tracing::warn!(
        session = %loss.key.digest(),
        server = %loss.server,
        instance = %loss.instance,
        "binding made while the store was away discarded: the store's binding won"
    );
    if let Some(upstream_session) = loss.upstream_session
        && let Some((server, instance)) =
            session_router.named_instance(&loss.server, &loss.instance)
    {
        let gateway = Principal::gateway();
        let caller = Caller::of(&gateway);
        session_router
            .delete_upstream(&server, &instance, upstream_session, &caller)
            .await;
    }
}
