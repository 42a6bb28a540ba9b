//! The embedded store: the engine of sessions without Redis, over one SQLite file that the processes of one machine share
//! safely, or over a database in memory.
//!
//! Every transition that writes is one `BEGIN IMMEDIATE` transaction on one row, decided by the rules, so two processes never
//! decide on the same state. A transition that changes nothing (most ROUTEs) does not wait for the write lock, and is decided
//! on the record in memory if the file has not changed since it was read ([`recent_sessions`]); its use is recorded while no
//! other process writes. A process may be killed at any moment: SQLite's write-ahead log keeps
//! committed transactions and drops the rest. `synchronous` is `NORMAL`: a power failure may lose the last commits, but
//! not the integrity of the file.
//!
//! Short-lived processes, started for one call each, share the file too: it is created and migrated under a lock
//! ([`file`]) and checked before use ([`schema`]). If it is damaged or cannot be written, sessions continue without it
//! ([`mend`], [`memory_copy`]).
//!
//! Caps, lists, placement by load and the reaper use columns beside the records, so they apply across processes. Turns
//! and events are per process: each process orders its own calls, and a caller that waits for another process's claim
//! polls.
//!
//! SQLite blocks, so one dedicated thread of a process writes; callers reach it through a bounded channel. A caller
//! reads by itself if the database is idle, since the data is in memory and the way to the thread costs more: it waits
//! for no lock, overtakes no command on the same session ([`pending`]), and leaves everything but a plain read to the
//! thread. Without a file there is no thread.

mod counting;
mod database;
mod desired_state;
mod failure;
mod file;
mod fleet;
mod history;
mod housekeeping;
mod known_workers;
mod listing;
mod memory_copy;
mod mend;
mod node;
mod pending;
mod reaping;
mod recent_sessions;
mod row;
mod schema;
mod tables;
#[cfg(test)]
mod tests;
mod values;

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rusqlite::Transaction;
use tokio::sync::oneshot;

use self::database::{Database, NowRead};
use self::failure::TransactionError;
use self::file::{FileConnection, MemoryUse};
use self::known_workers::KnownWorkers;
use self::pending::PendingCommands;
use crate::clock::Clock;
use crate::error::{NotReady, OpenError, StoreError};
use crate::key::SessionKey;
use crate::lock::lock;
use crate::queues::Queues;
use crate::status::{StatusCell, StoreMode};
use crate::transition::{Access, Transition};

/// Most commands queued for the thread. Beyond it callers wait for room.
const QUEUE_MAX: usize = 1_024;
/// How long a command may wait in the queue and for other processes' write locks before it is refused as busy. A hundred
/// processes that start at once need more than seven seconds on two processors.
const WAIT_MAX: Duration = Duration::from_secs(14);
/// Interval of purging ended tombstones, busy or not: heartbeats alone keep the thread from being idle.
const PURGE_INTERVAL: Duration = Duration::from_secs(10);

type Job = Box<dyn FnOnce(&mut Database) + Send>;

/// Handle of the database and its thread. Dropping it ends the thread after the queued work.
#[derive(Debug)]
pub(super) struct EmbeddedStore {
    /// The way to the thread. None without a file: then nothing blocks, and callers do their work themselves.
    jobs: Option<flume::Sender<Job>>,
    database: Arc<Mutex<Database>>,
    pending: PendingCommands,
    /// The turns and events of this process.
    queues: Arc<Queues>,
    prefix: Arc<str>,
    status: Arc<StatusCell>,
}

impl EmbeddedStore {
    /// Opens or creates the file, and starts the thread. If the file can be neither created nor opened, the store
    /// starts in memory, degraded.
    ///
    /// # Errors
    /// The file is locked for too long or has a newer version, or the thread cannot be started.
    pub(super) fn open(path: &Path, clock: Clock, prefix: &str) -> Result<Self, OpenError> {
        let status = StatusCell::new(StoreMode::Normal);
        let connection = mend::open(path, &status)?;
        Self::start(connection, path, status, clock, prefix)
    }

    /// Starts the store without a file: the sessions end with the process.
    ///
    /// # Errors
    /// SQLite cannot make a database in memory.
    pub(super) fn in_memory(clock: Clock, prefix: &str) -> Result<Self, OpenError> {
        let path = Path::new(":memory:");
        let connection = memory_copy::empty().map_err(|source| OpenError::File {
            path: path.to_owned(),
            source,
        })?;
        let status = StatusCell::new(StoreMode::Normal);
        let connection = FileConnection::memory(connection, MemoryUse::Store);
        Self::start(connection, path, status, clock, prefix)
    }

    fn start(
        connection: FileConnection,
        path: &Path,
        status: StatusCell,
        clock: Clock,
        prefix: &str,
    ) -> Result<Self, OpenError> {
        let queues = Arc::new(Queues::new(clock.clone(), prefix));
        let status = Arc::new(status);
        let is_private = connection.memory_use() == Some(MemoryUse::Store);
        let database = Arc::new(Mutex::new(Database::new(
            connection,
            path,
            clock,
            Arc::clone(&queues),
            Arc::clone(&status),
        )));
        let jobs = match is_private {
            true => None,
            false => Some(start_thread(&database)?),
        };
        Ok(Self {
            jobs,
            database,
            pending: PendingCommands::new(),
            queues,
            prefix: prefix.into(),
            status,
        })
    }

    /// Whether the sessions are invisible to other processes.
    pub(super) const fn is_private(&self) -> bool {
        self.jobs.is_none()
    }

    /// Whether the file is in use, or memory instead.
    pub(super) fn status(&self) -> &StatusCell {
        &self.status
    }

    pub(super) async fn run<T: Transition>(
        &self,
        key: &SessionKey,
        request: &T,
    ) -> Result<T::Reply, StoreError> {
        if T::ACCESS == Access::Reads
            && let Some(done) =
                self.read_here(key, |database| database.read_now(key, request, |_| Ok(())))
        {
            return done.map(|(reply, ())| reply);
        }
        let request = request.clone();
        self.run_in_order(key, move |database, key| database.transition(key, &request))
            .await
    }

    /// Reads at once, without the thread. None if that is not possible: the database is in use, a command on the session
    /// is on its way to the thread, or `read` returned none, because it needs more than reading. Then nothing was done.
    fn read_here<R>(
        &self,
        key: &SessionKey,
        read: impl FnOnce(&mut Database) -> Option<NowRead<R>>,
    ) -> Option<Result<R, StoreError>> {
        if self.pending.has(key) {
            return None;
        }
        let mut database = self.database.try_lock().ok()?;
        let NowRead { reply, used_at } = read(&mut database)?;
        drop(database);
        if let Some(used_at) = used_at {
            let key = key.clone();
            // If the queue is full, the use is not recorded beside the record.
            self.try_run(move |database| database.note_use(&key, used_at));
        }
        Some(reply)
    }

    /// Runs work that no caller waits for. Returns whether it will be done: not if the queue of the thread is full.
    fn try_run(&self, work: impl FnOnce(&mut Database) + Send + 'static) -> bool {
        match &self.jobs {
            Some(jobs) => jobs.try_send(Box::new(work)).is_ok(),
            None => {
                work(&mut lock(&self.database));
                true
            }
        }
    }

    /// Runs a command on this session on the thread, before any later one.
    async fn run_in_order<R: Send + 'static>(
        &self,
        key: &SessionKey,
        command: impl FnOnce(&mut Database, &SessionKey) -> Result<R, StoreError> + Send + 'static,
    ) -> Result<R, StoreError> {
        let (key, pending) = (key.clone(), self.pending.begin(key));
        self.run_on_thread(move |database| {
            let _until_done = pending;
            command(database, &key)
        })
        .await
    }

    /// Runs work in a writing transaction, with the current workers.
    async fn write<R: Send + 'static>(
        &self,
        work: impl Fn(&Transaction<'_>, &mut KnownWorkers, &Clock) -> Result<R, TransactionError>
        + Send
        + 'static,
    ) -> Result<R, StoreError> {
        self.run_on_thread(move |database| database.write(work))
            .await
    }

    /// Runs work on the thread, again if the file had to be replaced.
    async fn with_repair<R: Send + 'static>(
        &self,
        work: impl FnMut(&mut Database) -> Result<R, TransactionError> + Send + 'static,
    ) -> Result<R, StoreError> {
        self.run_on_thread(move |database| database.with_repair(work))
            .await
    }

    /// Runs work on the thread, if there is one. Queued work is done even if the caller no longer waits.
    async fn run_on_thread<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Database) -> Result<R, StoreError> + Send + 'static,
    ) -> Result<R, StoreError> {
        let Some(jobs) = &self.jobs else {
            return work(&mut lock(&self.database));
        };
        let (reply, answer) = oneshot::channel();
        let job: Job = Box::new(move |database| {
            // If the caller is gone, the work stays done.
            drop(reply.send(work(database)));
        });
        let run = async {
            let stopped = || StoreError::NotReady(NotReady::Stopped);
            jobs.send_async(job).await.map_err(|_| stopped())?;
            answer.await.map_err(|_| stopped())?
        };
        tokio::time::timeout(WAIT_MAX, run)
            .await
            .unwrap_or(Err(StoreError::NotReady(NotReady::Locked)))
    }
}

fn start_thread(database: &Arc<Mutex<Database>>) -> Result<flume::Sender<Job>, OpenError> {
    let (jobs, queue) = flume::bounded::<Job>(QUEUE_MAX);
    let database = Arc::clone(database);
    std::thread::Builder::new()
        .name("mooring-store".to_owned())
        .spawn(move || work(&queue, &database))
        .map_err(OpenError::Thread)?;
    Ok(jobs)
}

/// The loop of the thread, until the handle is dropped. It purges once at the start, so that processes that live for a
/// single call do so too.
fn work(queue: &flume::Receiver<Job>, database: &Mutex<Database>) {
    // With a file, only this thread waits for the lock.
    let locked = || lock(database);
    locked().purge();
    let mut purged_at = Instant::now();
    loop {
        match queue.recv_timeout(PURGE_INTERVAL) {
            Ok(job) => job(&mut locked()),
            Err(flume::RecvTimeoutError::Timeout) => {}
            Err(flume::RecvTimeoutError::Disconnected) => break,
        }
        if purged_at.elapsed() >= PURGE_INTERVAL {
            let mut database = locked();
            database.return_to_file();
            database.purge();
            purged_at = Instant::now();
        }
    }
    locked().return_to_file();
}
