//! The entry points for Redis: the function of every command, and the module's section of `INFO`.
//!
//! Invariant: callbacks only convert their arguments to safe types; [`EntryPoint`] does the rest.

use std::ffi::{CStr, c_int};

use redis_module::raw;

use super::text::Secrets;
use super::{Arguments, Context, OK};
use crate::command_spec::Entry;

/// What the function of a command enters. No panic may leave it.
pub(crate) trait EntryPoint {
    /// Runs the command and replies.
    fn enter(context: &Context, arguments: Arguments<'_>);
}

/// The function that runs `C`, as Redis calls it.
pub(crate) const fn entry<C: EntryPoint>() -> Entry {
    run_command::<C>
}

unsafe extern "C" fn run_command<C: EntryPoint>(
    context: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    let secrets = Secrets::default();
    // SAFETY: Redis passes `argc` strings that live until the command has returned.
    let arguments = unsafe { Arguments::from_raw(argv, argc, &secrets) };
    C::enter(&Context::of_command(context, arguments), arguments);
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
