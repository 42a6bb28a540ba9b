//! A scan of all keys of a database, in steps of a few keys.
//!
//! Invariants: as with the server's own SCAN, a key that exists from the first step to the last is returned at least
//! once. Between steps, only a cursor is kept.

use std::ffi::c_void;
use std::ptr;

use redis_module::raw;

use super::{Context, Text};
use crate::guard::guard_callback;

/// The position of a scan.
pub(crate) struct Scan {
    cursor: *mut raw::RedisModuleScanCursor,
}

// SAFETY: a cursor is a block of two integers that is not tied to a thread.
unsafe impl Send for Scan {}

/// Whether a scan continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScanState {
    /// There are more keys.
    More,
    /// All keys were returned.
    Done,
}

impl Scan {
    /// Starts before the first key.
    pub(crate) fn new() -> Self {
        Self {
            cursor: api!(RedisModule_ScanCursorCreate(), ptr::null_mut()),
        }
    }

    /// Calls `visit` with the names of the next few keys of the context's database. The keyspace must not be written to
    /// before it returns.
    pub(crate) fn step(&mut self, context: &Context, mut visit: impl FnMut(&[u8])) -> ScanState {
        if self.cursor.is_null() {
            return ScanState::Done;
        }
        let mut visit: &mut dyn FnMut(&[u8]) = &mut visit;
        let target = (&raw mut visit).cast::<c_void>();
        let more = api!(
            RedisModule_Scan(context.raw, self.cursor, Some(show_key), target),
            0
        );
        if more == 0 {
            ScanState::Done
        } else {
            ScanState::More
        }
    }
}

impl Drop for Scan {
    fn drop(&mut self) {
        if !self.cursor.is_null() {
            api!(RedisModule_ScanCursorDestroy(self.cursor), ());
        }
    }
}

extern "C" fn show_key(
    _context: *mut raw::RedisModuleCtx,
    name: *mut raw::RedisModuleString,
    _key: *mut raw::RedisModuleKey,
    target: *mut c_void,
) {
    // SAFETY: `target` is the reference that `step` holds exclusively while the scan runs, and nothing else touches it
    // in between.
    let visit = unsafe { &mut *target.cast::<&mut dyn FnMut(&[u8])>() };
    // SAFETY: the server's name of the key lives for the length of this callback.
    let name = unsafe { Text::borrow(name) };
    guard_callback(|| visit(name.as_bytes()));
}
