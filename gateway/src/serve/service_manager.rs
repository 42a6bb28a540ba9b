//! The protocol of systemd between the gateway and its service manager: the listener that the manager passes, and
//! notifications that the gateway is ready, that it stops, and that its threads still run.
//!
//! Invariant: without a service manager nothing here has an effect, and no failure to tell it anything ends a gateway.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use listenfd::ListenFd;
use sd_notify::{NotifyState, notify, watchdog_enabled};
use tokio::time::sleep;

use super::serving_threads::ServingThreads;

/// Beyond `worker.stop_patience_ms`: what a stop still does after the last reply, such as closing owned connections.
const STOP_MARGIN: Duration = Duration::from_secs(30);

/// Why the listener that the service manager passed cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum PassedListenerError {
    #[error(
        "it passed {count} descriptors, but the gateway serves one address: name one ListenStream="
    )]
    Several { count: usize },
    #[error(
        "it passed {passed}, but listen.address is {configured}: make ListenStream= and listen.address equal"
    )]
    OtherAddress {
        passed: SocketAddr,
        configured: SocketAddr,
    },
    #[error("it passed no TCP listener: {0}")]
    NoListener(#[from] io::Error),
}

/// The listener that the service manager holds across restarts of the gateway, if it passed one. Its address must be the
/// configured one, because the settings were checked for that: other machines may not reach a gateway without `auth.mode`.
pub(super) fn passed_listener(
    configured: SocketAddr,
) -> Result<Option<TcpListener>, PassedListenerError> {
    let mut descriptors = ListenFd::from_env();
    if descriptors.len() > 1 {
        let count = descriptors.len();
        return Err(PassedListenerError::Several { count });
    }
    let Some(listener) = descriptors.take_tcp_listener(0)? else {
        return Ok(None);
    };
    let passed = listener.local_addr()?;
    if passed != configured {
        return Err(PassedListenerError::OtherAddress { passed, configured });
    }
    listener.set_nonblocking(true)?;
    Ok(Some(listener))
}

/// The gateway serves.
pub(super) fn report_ready(address: SocketAddr) {
    let status = format!("serving {address}");
    report(&[NotifyState::Ready, NotifyState::Status(&status)]);
}

/// The gateway stops, and has asked for as much time as its open replies may take: the manager's own limit need not know
/// the settings.
pub(super) fn report_stopping(patience: Duration) {
    let extension = patience.saturating_add(STOP_MARGIN).as_micros();
    report(&[
        NotifyState::Stopping,
        NotifyState::Status("finishing open replies"),
        NotifyState::ExtendTimeoutUsec(u32::try_from(extension).unwrap_or(u32::MAX)),
    ]);
}

/// Notifies a manager that watches the gateway (`WatchdogSec=`) repeatedly that every serving thread has run a task. If
/// a thread is blocked, the notifications stop and the manager restarts the gateway: connections of that thread would
/// hang forever.
pub(super) async fn report_liveness(threads: Arc<ServingThreads>) {
    let Some(limit) = watchdog_enabled() else {
        return;
    };
    loop {
        threads.run_on_each().await;
        report(&[NotifyState::Watchdog]);
        sleep(limit / 3).await;
    }
}

fn report(states: &[NotifyState<'_>]) {
    if let Err(error) = notify(states) {
        tracing::warn!(%error, "the service manager could not be notified");
    }
}
