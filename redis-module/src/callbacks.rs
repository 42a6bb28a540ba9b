//! What the module does when the server calls it: loads, follows events, ticks, replies to blocked clients, unloads.
//!
//! Invariant: every step that can panic runs in [`guard`], so that no panic reaches the server.

use crate::events;
use crate::failure::Failure;
use crate::ffi::loading::Loading;
use crate::ffi::{
    Arguments, BlockedId, Callbacks, Context, KeyEvent, Level, OwnedText, Report, ServerEvent,
    log_warning,
};
use crate::figures;
use crate::guard::{guard, guard_callback, schedule_rebuild};
use crate::housekeeping;
use crate::keyspace;
use crate::load::load;
use crate::module::{Module, StateError};
use crate::settings;
use crate::tick_schedule::TickCause;
use crate::worker_wait;

/// Loads the module. Returns whether that succeeded; if not, the log says why and the server runs without it.
pub(crate) fn load_module(loading: &Loading<'_>, arguments: Arguments<'_>) -> bool {
    log_panics();
    match guard(|| Ok(load(loading, arguments))) {
        Ok(Ok(())) => true,
        Ok(Err(error)) => {
            let line = format!("not loaded: {error}");
            loading.context().log(Level::Warning, &line);
            false
        }
        Err(_) => false,
    }
}

/// The module, as the server calls it.
pub(crate) struct ModuleCallbacks;

impl Callbacks for ModuleCallbacks {
    fn key_changed(&self, context: &Context, what: KeyEvent, key: &[u8]) {
        // Events of all keys of the server come here.
        if keyspace::may_be_ours(key) {
            guard_callback(|| keyspace::take(context, what, key));
        }
    }

    fn server_changed(&self, context: &Context, event: ServerEvent) {
        match event {
            ServerEvent::Tick { hz } => tick(context, TickCause::Server { hz }),
            ServerEvent::Disconnected { client } => guard_callback(|| {
                // If the state is locked, the worker keeps its delegations until their leases lapse.
                let _ = Module::try_with(|module| {
                    worker_wait::on_disconnect(module, context, client);
                });
            }),
            event => guard_callback(|| {
                let followed = Module::try_with(|module| events::follow(module, context, event));
                if followed == Err(StateError::Busy) {
                    schedule_rebuild();
                }
            }),
        }
    }

    fn ring(&self, context: &Context) {
        tick(context, TickCause::Timer);
    }

    fn wake(&self, context: &Context, client: BlockedId) {
        let replied = guard(|| {
            let woken = Module::try_with(|module| worker_wait::wake(module, context, client));
            woken.map_err(|_| Failure::Internal)
        });
        if let Err(failure) = replied {
            context.reply_error(&failure.to_string());
        }
    }

    fn on_client_gone(&self, client: BlockedId) {
        guard_callback(|| {
            let taken = Module::try_with(|module| worker_wait::on_client_gone(module, client));
            if taken == Err(StateError::Busy) {
                log_warning("a waiting client that disconnected during a command was not removed");
            }
        });
    }

    fn switch_set(&self, context: &Context) {
        guard_callback(|| {
            // If the state is locked, the next tick does it.
            let _ = Module::try_with(|module| housekeeping::quiesce(module, context));
        });
    }

    fn unload(&self, context: &Context) {
        let _ = guard(|| {
            let _ = Module::try_with(|module| module.tick_schedule.stop(context));
            Module::remove();
            keyspace::release();
            settings::prefixes::release();
            drop(std::panic::take_hook());
            Ok(())
        });
    }

    fn report(&self, report: &Report) {
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
