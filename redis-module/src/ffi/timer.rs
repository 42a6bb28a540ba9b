//! Timers of the server's loop, each of which rings once.
//!
//! Invariant: no timer outlives its [`Timer`] unrung, unless that is forgotten on purpose: a ringing timer is gone by
//! itself. While one is set the server refuses to unload the module, so timers are only for what is under way.

use std::ffi::c_void;
use std::ptr;

use redis_module::raw;

use super::Context;
use crate::handler;

/// A timer that has been set.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Timer {
    id: raw::RedisModuleTimerID,
}

impl Context {
    /// Sets a timer, which calls [`handler::ring`](crate::handler::ring) after `after_ms`.
    pub(crate) fn set_timer(&self, after_ms: u64) -> Timer {
        let after_ms = i64::try_from(after_ms).unwrap_or(i64::MAX);
        Timer {
            id: api!(
                RedisModule_CreateTimer(self.raw, after_ms, Some(ring), ptr::null_mut()),
                0
            ),
        }
    }

    /// Takes a timer back. One that has rung is gone already.
    pub(crate) fn stop_timer(&self, timer: &Timer) {
        api!(
            RedisModule_StopTimer(self.raw, timer.id, ptr::null_mut()),
            0
        );
    }
}

extern "C" fn ring(context: *mut raw::RedisModuleCtx, _data: *mut c_void) {
    handler::ring(&Context::outside_commands(context));
}
