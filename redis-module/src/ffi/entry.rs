//! The entry points for Redis: the function of every command, and the module's section of `INFO`.
//!
//! Invariant: callbacks only convert their arguments to safe types; [`handler`](crate::handler) does the rest.

use std::ffi::{CStr, c_int};

use redis_module::raw;

use super::text::Secrets;
use super::{Arguments, Context, OK};
use crate::handler::{self, Command};

/// The entry point of one command, as Redis calls it.
pub(crate) type Entry = unsafe extern "C" fn(
    *mut raw::RedisModuleCtx,
    *mut *mut raw::RedisModuleString,
    c_int,
) -> c_int;

/// The entry point that runs `C` behind the boundary of the handler.
pub(crate) const fn entry<C: Command>() -> Entry {
    run_command::<C>
}

unsafe extern "C" fn run_command<C: Command>(
    context: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    let secrets = Secrets::default();
    // SAFETY: Redis passes `argc` strings that live until the command has returned.
    let arguments = unsafe { Arguments::from_raw(argv, argc, &secrets) };
    handler::run::<C>(&Context::of_command(context, arguments), arguments);
    secrets.redact(context, argc);
    OK
}

/// The module's section of `INFO`.
pub(crate) struct Report {
    pub(super) raw: *mut raw::RedisModuleInfoCtx,
}

impl Report {
    /// One figure.
    pub(crate) fn figure(&self, name: &CStr, value: u64) {
        api!(
            RedisModule_InfoAddFieldULongLong(self.raw, name.as_ptr(), value),
            0
        );
    }
}
