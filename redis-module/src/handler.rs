//! The boundary between the server and the commands.
//!
//! Invariants: a panic becomes `ERR internal error`. Every failure is returned with its stable code and counted. The
//! module's state is locked for one command at a time, and never while a keyspace event is published, because its
//! subscribers may call the module again.

use std::ffi::CStr;

use crate::failure::Failure;
use crate::ffi::{Arguments, Context, EntryPoint};
use crate::guard::guard;
use crate::keyspace;
use crate::module::Module;
use crate::reply;
use crate::worker_wait;

/// One command: parses its arguments, applies a rule, replies.
pub(crate) trait Command {
    /// Runs it and replies. A command that fails has not replied and changed nothing, with one exception: LEAVE with
    /// WAITING that returns `BUSY` limits the holder's turn.
    fn run(
        context: &Context,
        module: &mut Module,
        arguments: Arguments<'_>,
    ) -> Result<Outcome, Failure>;
}

/// The keyspace events of a command that succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Nothing.
    Quiet,
    /// The names of the keyspace events of its key, in this order.
    Transitions(&'static [&'static CStr]),
}

/// Runs a command behind the boundary.
impl<C: Command> EntryPoint for C {
    fn enter(context: &Context, arguments: Arguments<'_>) {
        let result = guard(|| {
            Module::with(|module| {
                keyspace::catch_up(module, context);
                let result = C::run(context, module, arguments);
                if let Err(failure) = &result {
                    module.counters.note_failure(failure);
                }
                keyspace::catch_up(module, context);
                worker_wait::serve(module);
                result
            })
        });
        match result {
            Ok(Outcome::Quiet) => {}
            Ok(Outcome::Transitions(events)) => {
                if let Some(key) = arguments.get(1) {
                    events.iter().for_each(|event| context.notify(event, key));
                }
            }
            Err(failure) => reply::failed(context, &failure),
        }
    }
}
