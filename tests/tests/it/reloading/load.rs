//! Clients that keep calling in their sessions, and notice every loss.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::{Context, ensure};
use mooring_tests::client::HttpClient;
use mooring_tests::session::McpSession;
use mooring_tests::wait;
use tokio::task::JoinHandle;

use super::SEEN_WITHIN;

/// Sessions that call `increment` until they are stopped. A session that lost its state counts from one again.
pub(super) struct Load {
    stopping: Arc<AtomicBool>,
    calls: Arc<AtomicU64>,
    sessions: Vec<JoinHandle<anyhow::Result<()>>>,
}

impl Load {
    /// Opens as many sessions at each of these endpoints.
    pub(super) async fn start(endpoints: &[String], sessions: usize) -> anyhow::Result<Self> {
        let (stopping, calls) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let mut running = Vec::new();
        for endpoint in endpoints {
            for _ in 0..sessions {
                let client = HttpClient::default();
                let mut session = McpSession::open(&client, std::slice::from_ref(endpoint)).await?;
                let (stopping, calls) = (Arc::clone(&stopping), Arc::clone(&calls));
                running.push(tokio::spawn(async move {
                    let mut count = 0;
                    while !stopping.load(Ordering::Relaxed) {
                        count += 1;
                        let told = session.increment().await?;
                        ensure!(told == count, "call {count} was counted as {told}");
                        calls.fetch_add(1, Ordering::Relaxed);
                    }
                    Ok(())
                }));
            }
        }
        Ok(Self {
            stopping,
            calls,
            sessions: running,
        })
    }

    /// Waits until so many more calls were answered.
    pub(super) async fn answers(&self, more: u64) -> anyhow::Result<()> {
        let until = self.calls.load(Ordering::Relaxed) + more;
        wait::until_true(&format!("{more} more calls"), SEEN_WITHIN, async || {
            let failed = self.sessions.iter().any(JoinHandle::is_finished);
            Ok(failed || self.calls.load(Ordering::Relaxed) >= until)
        })
        .await
    }

    /// Ends the sessions' calls. Fails if one of them failed, or if a session lost its state.
    pub(super) async fn stop(self) -> anyhow::Result<()> {
        self.stopping.store(true, Ordering::Relaxed);
        for session in self.sessions {
            session.await?.context("a session under load")?;
        }
        Ok(())
    }
}
