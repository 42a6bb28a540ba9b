//! The boundary between the server and the commands.
//!
//! Invariants: no panic unwinds into Redis, which would abort it: a panic becomes `ERR internal error` and a log line
//! with its location. Every failure is returned with its stable code and counted. The module's state is locked for one
//! command at a time, and never while a keyspace event is published, because its subscribers may call the module again.

use std::ffi::CStr;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::events;
use crate::failure::Failure;
use crate::ffi::loading::Loading;
use crate::ffi::{
    Arguments, BlockedId, Context, KeyEvent, Level, OwnedText, Report, ServerEvent, log_warning,
};
use crate::figures;
use crate::housekeeping;
use crate::keyspace;
use crate::module::{Module, StateError};
use crate::reply;
use crate::settings;
use crate::tick_schedule::TickCause;
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
pub(crate) fn run<C: Command>(context: &Context, arguments: Arguments<'_>) {
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

/// Loads the module. Returns whether that succeeded; if not, the log says why and the server runs without it.
pub(crate) fn load(loading: &Loading<'_>, arguments: Arguments<'_>) -> bool {
    log_panics();
    match guard(|| Ok(crate::load(loading, arguments))) {
        Ok(Ok(())) => true,
        Ok(Err(error)) => {
            let line = format!("not loaded: {error}");
            loading.context().log(Level::Warning, &line);
            false
        }
        Err(_) => false,
    }
}

/// A key under one of the prefixes was loaded or changed.
pub(crate) fn key_changed(context: &Context, what: KeyEvent, key: &[u8]) {
    guard_callback(|| keyspace::take(context, what, key));
}

/// An event of the server.
pub(crate) fn server_changed(context: &Context, event: ServerEvent) {
    match event {
        ServerEvent::Tick { hz } => tick(context, TickCause::Server { hz }),
        event => guard_callback(|| {
            let followed = Module::try_with(|module| events::follow(module, context, event));
            if followed == Err(StateError::Busy) {
                housekeeping::schedule_rebuild();
            }
        }),
    }
}

/// The timer fired.
pub(crate) fn ring(context: &Context) {
    tick(context, TickCause::Timer);
}

fn tick(context: &Context, cause: TickCause) {
    guard_callback(|| {
        let expired = Module::try_with(|module| housekeeping::tick(module, context, cause));
        for place in expired.unwrap_or_default() {
            if context.select(place.database) {
                context.notify(c"session.expired", OwnedText::new(&place.key).text());
            }
        }
    });
}

/// A client that was blocked is to get its reply.
pub(crate) fn wake(context: &Context, client: BlockedId) {
    let replied = guard(|| {
        let woken = Module::try_with(|module| worker_wait::wake(module, context, client));
        woken.map_err(|_| Failure::Internal)
    });
    if let Err(failure) = replied {
        context.reply_error(&failure.to_string());
    }
}

/// A client that was blocked has disconnected.
pub(crate) fn on_client_gone(client: BlockedId) {
    guard_callback(|| {
        let taken = Module::try_with(|module| worker_wait::on_client_gone(module, client));
        if taken == Err(StateError::Busy) {
            log_warning("a waiting client that disconnected during a command was not removed");
        }
    });
}

/// `mooring.quiesce` was set.
pub(crate) fn quiesce(context: &Context) {
    guard_callback(|| {
        // If the state is locked, the next tick does it.
        let _ = Module::try_with(|module| housekeeping::quiesce(module, context));
    });
}

/// Frees the module's state, before it is unloaded.
pub(crate) fn unload(context: &Context) {
    let _ = guard(|| {
        let _ = Module::try_with(|module| module.tick_schedule.stop(context));
        Module::remove();
        keyspace::release();
        settings::prefixes::release();
        drop(std::panic::take_hook());
        Ok(())
    });
}

/// Writes the module's section of INFO.
pub(crate) fn report(report: &Report) {
    let written = guard(|| {
        Module::with(|module| {
            for (name, value) in figures::all(module) {
                report.figure(name, value);
            }
            Ok(())
        })
    });
    if written.is_err() {
        log_warning("INFO mooring: the module's state is locked");
    }
}

/// Runs a step of a callback that cannot return a failure. The panic hook logs a panic.
pub(crate) fn guard_callback(step: impl FnOnce()) {
    let _ = guard(|| {
        step();
        Ok(())
    });
}

/// The only place that catches panics.
pub(crate) fn guard<T>(step: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    // A panic may leave only the module's in-memory state incomplete, and the derived parts of it are rebuilt. The
    // record is written at once, after the rule has decided.
    catch_unwind(AssertUnwindSafe(step)).unwrap_or_else(|_| {
        housekeeping::schedule_rebuild();
        Err(Failure::Internal)
    })
}

/// Logs the location of every panic. The message is left out: it may contain a client's words.
fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map_or_else(
            || "an unknown place".to_owned(),
            |location| format!("{}:{}", location.file(), location.line()),
        );
        log_warning(&format!(
            "internal error at {place}; the command was refused"
        ));
    }));
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic, reason = "the panic is what is tested")]
    use super::*;

    #[test]
    fn a_panic_becomes_an_internal_error() {
        let result: Result<(), _> = guard(|| panic!("a defect"));
        assert_eq!(
            result.map_err(|failure| failure.to_string()),
            Err("ERR internal error".to_owned())
        );
    }
}
