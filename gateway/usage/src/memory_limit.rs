//! One limit of bytes, and those who wait until some are given back.
//!
//! Invariant: who waits is woken by the next return of bytes, also by one that comes between the failed attempt and the
//! registration: waiters try again after they are registered. Without waiters a return is one addition and one load.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

/// A limit has one part in so many that only short messages may take.
const RESERVE_PARTS: usize = 8;

/// A limit of bytes.
#[derive(Debug)]
pub(crate) struct MemoryLimit {
    /// Most bytes in all.
    bytes_max: usize,
    /// Most bytes in all for a message that is not short.
    long_bytes_max: usize,
    used: AtomicUsize,
    is_awaited: AtomicBool,
    waiting: Mutex<Vec<Waker>>,
}

impl MemoryLimit {
    /// A limit of `bytes_max` bytes, whose reserve leaves room for a message of `longest` bytes.
    pub(crate) fn new(bytes_max: usize, longest: usize) -> Self {
        let beside_reserve = bytes_max - bytes_max / RESERVE_PARTS;
        Self {
            bytes_max,
            long_bytes_max: beside_reserve.max(longest).min(bytes_max),
            used: AtomicUsize::new(0),
            is_awaited: AtomicBool::new(false),
            waiting: Mutex::default(),
        }
    }

    /// Takes so many bytes; false if they would be more than `most` in all.
    pub(crate) fn try_take(&self, bytes: usize, most: usize) -> bool {
        let taken = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= most);
        self.used
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, taken)
            .is_ok()
    }

    /// Gives bytes back.
    pub(crate) fn give_back(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::SeqCst);
        if !self.is_awaited.load(Ordering::SeqCst) {
            return;
        }
        let woken = {
            let mut waiting = self.waiting();
            self.is_awaited.store(false, Ordering::SeqCst);
            std::mem::take(&mut *waiting)
        };
        woken.into_iter().for_each(Waker::wake);
    }

    /// Wakes `waker` when bytes are given back. The caller has to try again after this.
    pub(crate) fn register(&self, waker: &Waker) {
        let mut waiting = self.waiting();
        if !waiting.iter().any(|known| known.will_wake(waker)) {
            waiting.push(waker.clone());
        }
        self.is_awaited.store(true, Ordering::SeqCst);
    }

    /// The bytes that are taken.
    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// The most bytes in all.
    pub(crate) const fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// The most bytes in all for a message that is not short.
    pub(crate) const fn long_bytes_max(&self) -> usize {
        self.long_bytes_max
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Waker>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
