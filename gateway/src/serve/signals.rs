//! The signals that stop the process: SIGTERM, SIGINT, and SIGHUP if the terminal is gone.
//!
//! Invariant: SIGHUP never ends a process without draining it. Service managers send it to reload settings; since
//! settings are only read at the start, it is logged and otherwise ignored.

use std::io::IsTerminal as _;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Returns when the process has to stop.
pub(super) async fn stop_requested() {
    let interrupted = tokio::signal::ctrl_c();
    let hung_up = hang_up(std::io::stderr().is_terminal());
    match signal(SignalKind::terminate()) {
        Ok(mut terminated) => {
            tokio::select! {
                _ = interrupted => {}
                _ = terminated.recv() => {}
                () = hung_up => {}
            }
        }
        // Without a handler the signal kills the process, as is its purpose.
        Err(_) => {
            tokio::select! {
                _ = interrupted => {}
                () = hung_up => {}
            }
        }
    }
}

/// Returns on SIGHUP if the process had a terminal; otherwise logs each one and never returns.
async fn hang_up(has_terminal: bool) {
    let mut hung_up: Signal = match signal(SignalKind::hangup()) {
        Ok(hung_up) => hung_up,
        Err(_) => return std::future::pending().await,
    };
    while hung_up.recv().await.is_some() {
        if has_terminal {
            return;
        }
        tracing::warn!("SIGHUP is ignored: settings are read at the start; restart to change them");
    }
    std::future::pending().await
}
