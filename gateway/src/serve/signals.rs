//! The signals that end a process in order: SIGTERM, SIGINT, and SIGHUP where it says that the terminal is gone.
//!
//! Invariant: SIGHUP never ends a process undrained. Service managers send it for "read the settings again"; settings are
//! read at the start only, so that it is logged and nothing else happens.

use std::io::IsTerminal as _;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Returns when the process is to stop.
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
        // Without a handler the signal ends the process, which is what it asks for.
        Err(_) => {
            tokio::select! {
                _ = interrupted => {}
                () = hung_up => {}
            }
        }
    }
}

/// Returns at SIGHUP where there was a terminal; otherwise logs each and never returns.
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
