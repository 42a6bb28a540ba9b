//! Timers of the server's loop, each of which fires once.
//!
//! Invariant: no pending timer outlives its [`Timer`], unless that is forgotten on purpose: a timer that fires is
//! removed by the server. While one is set, the server refuses to unload the module, so timers are set only while there
//! is work.

use std::ffi::c_void;
use std::ptr;

use redis_module::raw;

use super::{Context, callbacks};

/// A timer that has been set.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Timer {
    id: raw::RedisModuleTimerID,
}

impl Context {
    /// Sets a timer, which calls [`Callbacks::ring`](super::Callbacks::ring) after `after_ms`.
    pub(crate) fn set_timer(&self, after_ms: u64) -> Timer {
        let after_ms = i64::try_from(after_ms).unwrap_or(i64::MAX);
        Timer {
            id: api!(
                RedisModule_CreateTimer(self.raw, after_ms, Some(ring), ptr::null_mut()),
                0
            ),
        }
    }

    /// Stops a timer. Does nothing if it has fired already.
    pub(crate) fn stop_timer(&self, timer: &Timer) {
        api!(
            RedisModule_StopTimer(self.raw, timer.id, ptr::null_mut()),
            0
        );
    }
}

extern "C" fn ring(context: *mut raw::RedisModuleCtx, _data: *mut c_void) {
    callbacks::call(|module| module.ring(&Context::outside_commands(context)));
}
