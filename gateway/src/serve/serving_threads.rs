//! The threads that serve client connections, each with a runtime of its own.
//!
//! Invariant: one thread serves a connection from accept to close, and what its requests start runs there: a call is
//! never handed from thread to thread, which would cost more than the work of a small call (decision 0052). On each thread
//! the users whose requests it serves get the same processor time (decision 0081).

use std::io;
use std::net::IpAddr;
use std::num::NonZero;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use mooring_usage::{FlowId, fair_task, share_fairly};

/// Most blocking threads of a runtime: one for each concurrent run (`code.runs_at_once` is at most 1024), and some for
/// files and housekeeping. They are created on demand.
const BLOCKING_THREADS_MAX: usize = 1024 + 256;
/// How long a runtime waits for its blocking threads when it ends. Runs were cancelled by then.
const BLOCKING_PATIENCE: Duration = Duration::from_secs(5);

/// Pause between looks whether the threads have ended.
const STOP_PAUSE: Duration = Duration::from_millis(5);

/// A runtime of the thread that drives it.
///
/// # Errors
/// The system's, for its descriptors.
pub fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread()
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .enable_all()
        .build()
}

/// Ends a runtime. What still blocks does not delay that for long.
pub fn end_runtime(runtime: Runtime) {
    runtime.shutdown_timeout(BLOCKING_PATIENCE);
}

/// All threads that serve. The first is the one that accepts.
#[derive(Debug)]
pub(super) struct ServingThreads {
    threads: Vec<ServingThread>,
    /// All but the first.
    started: Vec<JoinHandle<()>>,
    stopping: CancellationToken,
    connections: TaskTracker,
}

#[derive(Debug)]
struct ServingThread {
    runtime: Handle,
    /// Has one more reference for each connection that the thread serves.
    load: Arc<()>,
}

impl ServingThreads {
    /// The thread of the caller's runtime, and further ones up to `count`; 0 means one for each core that the process
    /// may use.
    ///
    /// # Errors
    /// A thread or its runtime cannot be started.
    pub(super) fn start(count: usize) -> io::Result<Self> {
        let count = match count {
            0 => thread::available_parallelism().map_or(1, NonZero::get),
            count => count,
        };
        tokio::spawn(share_fairly());
        let all = Self {
            threads: vec![ServingThread::of(Handle::current())],
            started: Vec::new(),
            stopping: CancellationToken::new(),
            connections: TaskTracker::new(),
        };
        (2..=count).try_fold(all, Self::with_thread)
    }

    fn with_thread(mut self, number: usize) -> io::Result<Self> {
        let runtime = runtime()?;
        runtime.spawn(share_fairly());
        self.threads
            .push(ServingThread::of(runtime.handle().clone()));
        let stopping = self.stopping.clone();
        let thread = thread::Builder::new()
            .name(format!("serve-{number}"))
            .spawn(move || {
                runtime.block_on(stopping.cancelled());
                end_runtime(runtime);
            })?;
        self.started.push(thread);
        Ok(self)
    }

    /// How many threads serve.
    pub(super) fn count(&self) -> usize {
        self.threads.len()
    }

    /// Serves a connection from this address on the thread with the fewest.
    pub(super) fn serve<F: Future<Output = ()> + Send>(
        &self,
        stream: TcpStream,
        address: IpAddr,
        connection: impl FnOnce(TcpStream) -> F + Send + 'static,
    ) -> io::Result<()> {
        let least = |thread: &&ServingThread| Arc::strong_count(&thread.load);
        let Some(thread) = self.threads.iter().min_by_key(least) else {
            return Ok(());
        };
        // The socket leaves this runtime's poll, and joins that of its thread.
        let stream = stream.into_std()?;
        let load = Arc::clone(&thread.load);
        let served = async move {
            match TcpStream::from_std(stream) {
                Ok(stream) => connection(stream).await,
                Err(error) => tracing::warn!(%error, "a client connection cannot be served"),
            }
            drop(load);
        };
        let served = fair_task(FlowId::of_address(address), served);
        thread.runtime.spawn(self.connections.track_future(served));
        Ok(())
    }

    /// Returns when each thread has run a task, which one that is blocked does not.
    pub(super) async fn run_on_each(&self) {
        for thread in &self.threads {
            // An ended runtime runs nothing, and blocks nothing.
            let _ = thread.runtime.spawn(async {}).await;
        }
    }

    /// Returns when the last connection has closed. No other may be served any more.
    pub(super) async fn all_closed(&self) {
        self.connections.close();
        self.connections.wait().await;
    }

    /// Ends the threads but for the caller's, with whatever still runs there, and waits for them as long as for a
    /// runtime that ends.
    pub(super) async fn stop(&self) {
        self.stopping.cancel();
        let ended = async {
            while !self.started.iter().all(JoinHandle::is_finished) {
                tokio::time::sleep(STOP_PAUSE).await;
            }
        };
        if tokio::time::timeout(BLOCKING_PATIENCE, ended)
            .await
            .is_err()
        {
            tracing::info!("a serving thread did not end in time");
        }
    }
}

impl ServingThread {
    fn of(runtime: Handle) -> Self {
        Self {
            runtime,
            load: Arc::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::sync::mpsc::channel;

    use super::*;

    #[tokio::test]
    async fn a_thread_that_is_blocked_is_noticed() {
        let threads = ServingThreads::start(2).unwrap();
        threads.run_on_each().await;
        let (blocked, (release, released)) = (channel(), channel::<()>());
        threads.threads.last().unwrap().runtime.spawn(async move {
            blocked.0.send(()).unwrap();
            released.recv().unwrap();
        });
        blocked.1.recv().unwrap();
        let all_run = tokio::time::timeout(Duration::from_millis(50), threads.run_on_each());
        assert!(all_run.await.is_err());
        release.send(()).unwrap();
        threads.run_on_each().await;
        threads.stop().await;
    }
}
