//! The background tasks of what a reload can replace: keys and tokens that are kept current, and the upkeep of code
//! servers.
//!
//! Invariant: a task ends when what it works for is no longer served, and what a reload leaves as it is keeps its task. The
//! upkeep of code servers outlives the last of them, until others come: their sessions and records are on the volume.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, JoinSet};

use crate::http::App;
use mooring_code::reaper;
use mooring_code::server::{CodeServers, Services};

/// The tasks of the present state.
#[derive(Debug)]
pub(crate) struct AppTasks {
    /// Between two passes over what ended sessions and runs have left.
    reap_interval: Duration,
    /// By the address of what each works for, which lives as long as the task.
    running: HashMap<usize, Vec<AbortHandle>>,
    /// The address of the code servers that were served last.
    code: Option<usize>,
    tasks: JoinSet<()>,
}

impl AppTasks {
    /// No tasks yet.
    pub(crate) fn new(reap_interval: Duration) -> Self {
        Self {
            reap_interval,
            running: HashMap::new(),
            code: None,
            tasks: JoinSet::new(),
        }
    }

    /// Starts the tasks of this state that do not run yet, and ends those of the state before. Returns once each token
    /// that is new was asked for.
    pub(crate) async fn follow(&mut self, app: &App) {
        let mut present = std::mem::take(&mut self.running);
        let authenticator = Arc::clone(&app.authenticator);
        self.keep(&mut present, address_of(&authenticator), |tasks| {
            vec![tasks.spawn(async move { authenticator.keep_keys().await })]
        });
        let code = app.directory.code.as_ref().map(CodeServers::services);
        if let Some(code) = code {
            let interval = self.reap_interval;
            self.code = Some(address_of(code));
            self.keep(&mut present, address_of(code), |tasks| {
                keep_code(code, interval, tasks)
            });
        } else if let Some(address) = self.code
            && let Some(tasks) = present.remove(&address)
        {
            // What the last code servers have left is cleaned up after them.
            self.running.insert(address, tasks);
        }
        let mut attempts = Vec::new();
        for token in app.server_tokens.values() {
            let client = app.core.session_router.client().http().clone();
            let (attempted, first) = oneshot::channel();
            let token = Arc::clone(token);
            self.keep(&mut present, address_of(&token), |tasks| {
                attempts.push(first);
                let keeping = async move {
                    let attempted = || {
                        // The receiver is gone only if the gateway stops.
                        let _ = attempted.send(());
                    };
                    token.keep_current(&client, attempted).await;
                };
                vec![tasks.spawn(keeping)]
            });
        }
        for task in present.into_values().flatten() {
            task.abort();
        }
        // What has ended is not kept in the set.
        while self.tasks.try_join_next().is_some() {}
        join_all(attempts).await;
    }

    /// Keeps the tasks that run for what is at this address, or starts them.
    fn keep(
        &mut self,
        present: &mut HashMap<usize, Vec<AbortHandle>>,
        address: usize,
        start: impl FnOnce(&mut JoinSet<()>) -> Vec<AbortHandle>,
    ) {
        let tasks = present.remove(&address);
        let tasks = tasks.unwrap_or_else(|| start(&mut self.tasks));
        self.running.insert(address, tasks);
    }
}

fn address_of<T>(part: &Arc<T>) -> usize {
    Arc::as_ptr(part).addr()
}

/// Cleans up after the sessions and runs of code servers.
fn keep_code(
    services: &Arc<Services>,
    interval: Duration,
    tasks: &mut JoinSet<()>,
) -> Vec<AbortHandle> {
    vec![
        tasks.spawn(reaper::reap(Arc::clone(services), interval)),
        tasks.spawn(reaper::sweep(Arc::clone(services))),
        tasks.spawn(Arc::clone(services).keep_records(interval)),
    ]
}
