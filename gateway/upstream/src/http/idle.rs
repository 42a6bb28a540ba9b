//! The idle connections of one thread.
//!
//! Invariants: the connection that was used last is used first, so that a pool shrinks to what is needed; one that has
//! been idle for too long, or that its server has closed or sent anything over, is not used, and is closed within
//! [`SWEEP_EVERY`]; of an origin that any thread distrusted, none that was open before is used.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

use super::UpstreamStream;

/// Most idle connections to one origin: enough for a thread's concurrency, and small compared to its file limit.
const IDLE_MAX: usize = 512;
/// Interval of looking for connections that have to be closed, while there are idle ones.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// The idle connections of one thread, by origin. Origins come from the settings, so their number is limited by them.
/// The locks are for a reply that another thread drops; nothing waits for them.
#[derive(Debug)]
pub(super) struct IdleConnections {
    origins: Origins<OriginConnections>,
    idle_max: Duration,
    distrust: Arc<Distrust>,
    is_swept: AtomicBool,
}

/// A value for each origin: host and port, without TLS and with it.
#[derive(Debug)]
struct Origins<T> {
    plain: OriginMap<T>,
    tls: OriginMap<T>,
}

type OriginMap<T> = Mutex<HashMap<Box<str>, Arc<T>, foldhash::fast::RandomState>>;

impl<T> Default for Origins<T> {
    fn default() -> Self {
        Self {
            plain: Mutex::default(),
            tls: Mutex::default(),
        }
    }
}

impl<T> Origins<T> {
    /// The value of this origin, which is made if there is none.
    fn find(&self, is_tls: bool, authority: &str, make: impl FnOnce() -> T) -> Arc<T> {
        let mut origins = lock(if is_tls { &self.tls } else { &self.plain });
        if let Some(origin) = origins.get(authority) {
            return Arc::clone(origin);
        }
        let made = Arc::new(make());
        origins.insert(authority.into(), Arc::clone(&made));
        made
    }
}

/// How often each origin was distrusted, by any thread.
#[derive(Debug, Default)]
pub(super) struct Distrust(Origins<AtomicU64>);

impl Distrust {
    /// None of the connections to this host and port that are open now is used for another request.
    pub(super) fn add(&self, is_tls: bool, authority: &str) {
        self.times(is_tls, authority).fetch_add(1, Ordering::AcqRel);
    }

    fn times(&self, is_tls: bool, authority: &str) -> Arc<AtomicU64> {
        self.0.find(is_tls, authority, AtomicU64::default)
    }
}

impl IdleConnections {
    pub(super) fn new(idle_max: Duration, distrust: Arc<Distrust>) -> Arc<Self> {
        Arc::new(Self {
            origins: Origins::default(),
            idle_max,
            distrust,
            is_swept: AtomicBool::new(false),
        })
    }

    /// The pool of this host and port, with TLS or without.
    pub(super) fn find_pool(self: &Arc<Self>, is_tls: bool, authority: &str) -> OriginPool {
        let make = || OriginConnections {
            idle: Mutex::default(),
            distrusted: self.distrust.times(is_tls, authority),
        };
        let origin = self.origins.find(is_tls, authority, make);
        let distrusted_before = origin.times_distrusted();
        OriginPool {
            all: Arc::clone(self),
            origin,
            distrusted_before,
        }
    }

    /// Closes connections that are idle for too long or closed by their server. Returns whether any other is left.
    fn sweep(&self) -> bool {
        let mut is_any_left = false;
        for origins in [&self.origins.plain, &self.origins.tls] {
            for origin in lock(origins).values() {
                let distrusted = origin.times_distrusted();
                let mut idle = lock(&origin.idle);
                idle.retain_mut(|idle| self.is_usable(idle, distrusted));
                is_any_left |= !idle.is_empty();
            }
        }
        is_any_left
    }

    /// Starts the task that closes connections, unless it runs.
    fn start_sweeping(self: &Arc<Self>) {
        // Without a runtime the process is stopping.
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        if self.is_swept.swap(true, Ordering::AcqRel) {
            return;
        }
        let running = RunningSweep(Arc::clone(self));
        runtime.spawn(async move {
            loop {
                sleep(SWEEP_EVERY).await;
                if !running.0.sweep() {
                    break;
                }
            }
            let all = Arc::clone(&running.0);
            drop(running);
            // One that was given back since the look.
            if all.sweep() {
                all.start_sweeping();
            }
        });
    }

    fn is_usable(&self, idle: &mut IdleConnection, distrusted: u64) -> bool {
        idle.distrusted_before == distrusted
            && idle.since.elapsed() < self.idle_max
            && idle.stream.is_idle()
    }
}

/// Where the connections to one origin are while they are idle.
#[derive(Debug)]
pub(super) struct OriginPool {
    all: Arc<IdleConnections>,
    origin: Arc<OriginConnections>,
    /// How often the origin had been distrusted when the request began.
    distrusted_before: u64,
}

#[derive(Debug)]
struct OriginConnections {
    /// In the order in which they became idle.
    idle: Mutex<Vec<IdleConnection>>,
    /// How often the origin was distrusted.
    distrusted: Arc<AtomicU64>,
}

#[derive(Debug)]
struct IdleConnection {
    stream: UpstreamStream,
    since: Instant,
    /// How often the origin had been distrusted when its last request began.
    distrusted_before: u64,
}

impl OriginConnections {
    fn times_distrusted(&self) -> u64 {
        self.distrusted.load(Ordering::Acquire)
    }
}

impl OriginPool {
    /// Takes the connection that was used last, if it can still be used.
    ///
    /// A response that arrives between this check and the request cannot be distinguished from the request's own. Its
    /// reader detects by the id that it answers another message.
    pub(super) fn take(&self) -> Option<UpstreamStream> {
        let distrusted = self.origin.times_distrusted();
        loop {
            let mut idle = lock(&self.origin.idle).pop()?;
            if self.all.is_usable(&mut idle, distrusted) && idle.stream.is_silent() {
                return Some(idle.stream);
            }
        }
    }

    /// Keeps a connection for the next request.
    pub(super) fn give_back(&self, mut stream: UpstreamStream) {
        // Also replaces the waker of the task that used it, which would otherwise be kept.
        if self.all.idle_max.is_zero()
            || self.origin.times_distrusted() != self.distrusted_before
            || !stream.is_idle()
        {
            return;
        }
        let mut idle = lock(&self.origin.idle);
        if idle.len() < IDLE_MAX {
            idle.push(IdleConnection {
                stream,
                since: Instant::now(),
                distrusted_before: self.distrusted_before,
            });
        }
        drop(idle);
        self.all.start_sweeping();
    }

    /// None of the connections to the origin that are open now is used for another request.
    pub(super) fn distrust(&self) {
        self.origin.distrusted.fetch_add(1, Ordering::AcqRel);
    }
}

/// The task that closes connections runs until this is dropped.
struct RunningSweep(Arc<IdleConnections>);

impl Drop for RunningSweep {
    fn drop(&mut self) {
        self.0.is_swept.store(false, Ordering::Release);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
