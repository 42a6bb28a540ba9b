//! The signals that stop the process: SIGTERM, SIGINT, and SIGHUP if the terminal is gone. Otherwise SIGHUP reloads the
//! settings.
//!
//! Invariant: SIGHUP never ends a process without draining it.

use std::io::IsTerminal as _;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Returns when the process has to stop. Calls `on_hang_up` for each SIGHUP that does not mean that.
pub(super) async fn stop_requested(on_hang_up: impl Fn()) {
    let interrupted = tokio::signal::ctrl_c();
    let hung_up = hang_up(std::io::stderr().is_terminal(), on_hang_up);
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

/// Returns on SIGHUP if the process had a terminal that is gone; otherwise calls `on_hang_up` each time and never returns.
async fn hang_up(had_terminal: bool, on_hang_up: impl Fn()) {
    let mut hung_up: Signal = match signal(SignalKind::hangup()) {
        Ok(hung_up) => hung_up,
        Err(_) => return std::future::pending().await,
    };
    while hung_up.recv().await.is_some() {
        if had_terminal && !std::io::stderr().is_terminal() {
            return;
        }
        on_hang_up();
    }
    std::future::pending().await
}
