//! Work that no run waits for: starting helpers in advance, each for one run, and ending those that had one.
//!
//! One thread does both. It lives as long as the sandbox, because a helper is tied to the thread that started it.
//!
//! Invariant: a run never fails because of a waiting helper. A dead helper is skipped, and a run that fails in its
//! helper is started again in a fresh one, unless its program may have been started.

use std::collections::VecDeque;
use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::begun::{BegunHelper, SETUP_WAIT};
use crate::cgroup::CgroupBackend;
use crate::tier::Tier;

/// The pause after a helper could not be begun. Runs begin their own meanwhile.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// The waiting helpers of one sandbox, in the strict tier. Dropping it ends them.
#[derive(Debug)]
pub(super) struct WarmHelpers {
    pool: Arc<Pool>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Pool {
    state: Mutex<PoolState>,
    changed: Condvar,
}

#[derive(Debug)]
struct PoolState {
    waiting: VecDeque<BegunHelper>,
    /// Those to be ended: their run is over, or they died while they waited.
    finished: Vec<BegunHelper>,
    /// How many are to be begun.
    missing: usize,
    /// Whether the thread is beginning one, or ending some.
    is_busy: bool,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Open,
    /// None waits any more, and none is begun. Runs may still be in helpers of the thread, which it ends.
    Closed,
    /// No run is in one either.
    Over,
}

/// A helper for one run. When this is dropped, a replacement is started.
#[derive(Debug)]
pub(super) struct Replacement<'a>(&'a Pool);

impl WarmHelpers {
    /// Has `count` helpers begun.
    pub(super) fn start(
        count: usize,
        launcher: PathBuf,
        groups: Arc<CgroupBackend>,
    ) -> io::Result<Self> {
        let pool = Arc::new(Pool {
            state: Mutex::new(PoolState {
                waiting: VecDeque::with_capacity(count),
                finished: Vec::new(),
                missing: count,
                is_busy: false,
                stage: Stage::Open,
            }),
            changed: Condvar::new(),
        });
        let thread = thread::Builder::new().name("warm-helpers".to_owned());
        let thread = thread.spawn({
            let pool = Arc::clone(&pool);
            move || pool.serve(|| begin(&launcher, &groups))
        })?;
        Ok(Self {
            pool,
            thread: Some(thread),
        })
    }

    /// The helper that has waited longest and lives.
    pub(super) fn take(&self) -> Option<(BegunHelper, Replacement<'_>)> {
        let mut state = self.pool.lock();
        while let Some(helper) = state.waiting.pop_front() {
            if helper.is_alive() {
                return Some((helper, Replacement(&self.pool)));
            }
            state.missing += 1;
            state.finished.push(helper);
            self.pool.changed.notify_all();
        }
        None
    }

    /// Has a helper ended whose run is over, and its group removed.
    pub(super) fn end(&self, helper: BegunHelper) {
        self.pool.lock().finished.push(helper);
        self.pool.changed.notify_all();
    }

    /// Ends the waiting helpers and those whose run is over, and starts no further ones.
    pub(super) fn close(&self) {
        let mut state = self.pool.lock();
        state.stage = Stage::Closed;
        while state.is_busy {
            state = wait(self.pool.changed.wait(state));
        }
        let waiting = std::mem::take(&mut state.waiting);
        let finished = std::mem::take(&mut state.finished);
        drop(state);
        drop((waiting, finished));
    }

    /// The processes that wait, as the host counts them: each helper, and its process 1.
    pub(super) fn processes(&self) -> Vec<[i32; 2]> {
        let pids = |helper: &BegunHelper| {
            let first = helper.first.as_ref()?;
            Some([helper.helper.pid(), first.pid].map(|pid| pid.as_raw_nonzero().get()))
        };
        self.pool.lock().waiting.iter().filter_map(pids).collect()
    }
}

impl Drop for WarmHelpers {
    fn drop(&mut self) {
        self.close();
        self.pool.lock().stage = Stage::Over;
        self.pool.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // Nothing is left to do if it panicked.
            let _ = thread.join();
        }
    }
}

impl Drop for Replacement<'_> {
    fn drop(&mut self) {
        self.0.lock().missing += 1;
        self.0.changed.notify_all();
    }
}

impl Pool {
    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends what has finished and begins what is missing, until it is over.
    fn serve(&self, begin: impl Fn() -> Option<BegunHelper>) {
        let mut state = self.lock();
        let mut resumes_at = Instant::now();
        while state.stage != Stage::Over {
            let finished = std::mem::take(&mut state.finished);
            let is_short = state.missing > 0 && state.stage == Stage::Open;
            let pause = resumes_at.saturating_duration_since(Instant::now());
            let begins = is_short && pause.is_zero();
            if finished.is_empty() && !begins {
                state = match is_short {
                    true => wait(self.changed.wait_timeout(state, pause)).0,
                    false => wait(self.changed.wait(state)),
                };
                continue;
            }
            state.is_busy = true;
            if begins {
                state.missing -= 1;
                drop(state);
                // The thread must not end with a panic: the kernel would kill every run that is in one of its helpers.
                let begun = panic::catch_unwind(AssertUnwindSafe(&begin));
                state = self.lock();
                match begun.ok().flatten() {
                    Some(helper) => state.waiting.push_back(helper),
                    None => {
                        state.missing += 1;
                        resumes_at = Instant::now() + RETRY_PAUSE;
                    }
                }
            }
            // Second: the next run waits for a helper, and no one waits for these, which may take seconds.
            drop(state);
            drop(finished);
            state = self.lock();
            state.is_busy = false;
            self.changed.notify_all();
        }
    }
}

fn wait<T>(waited: Result<T, PoisonError<T>>) -> T {
    waited.unwrap_or_else(PoisonError::into_inner)
}

/// None where it could not be begun. A run reports why, when it begins its own.
fn begin(launcher: &Path, groups: &CgroupBackend) -> Option<BegunHelper> {
    let mut helper = BegunHelper::begin(launcher, groups, Tier::Strict).ok()?;
    helper.until_waiting(SETUP_WAIT).ok()?;
    Some(helper)
}
