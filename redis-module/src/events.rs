//! Events of the server (flush, load, failover), and how turns, worker events and indexes follow them. The keyspace
//! events that the module publishes are in `handler.rs`, and `session.expired` in `callbacks.rs`.
//!
//! Invariant: an index is never reported as complete while it disagrees with the data. A change of many keys that sends
//! no event for each of them (flush, load, synchronization) causes a rebuild.

use mooring_session::time::Timestamp;

use crate::ffi::{Context, ServerEvent};
use crate::keyspace;
use crate::module::Module;
use crate::rebuild::RebuildCause;

/// Follows an event.
pub(crate) fn follow(module: &mut Module, context: &Context, event: ServerEvent) {
    match event {
        ServerEvent::Flushing { database } => flush(module, context, database),
        ServerEvent::Swapped { first, second } => swap(module, first, second),
        // A load into a second copy (diskless synchronization) does not change the data that is served.
        ServerEvent::LoadingStarted if context.is_loading_aside() => {}
        ServerEvent::LoadingStarted => {
            module.rebuild.set_loading(true);
            let now = Timestamp::from_unix_ms(context.unix_ms());
            module.indexes.begin_loading(now);
        }
        ServerEvent::LoadingEnded => end_loading(module),
        ServerEvent::LoadingFailed => {
            end_loading(module);
            module.rebuild_all(context, RebuildCause::LoadingFailed);
        }
        ServerEvent::AsideCompleted | ServerEvent::AsideAborted => {
            module.rebuild_all(context, RebuildCause::Synchronized);
        }
        ServerEvent::Promoted => {
            module.start_serving();
            module.rebuild_all(context, RebuildCause::Promoted);
        }
        ServerEvent::Demoted => module.stop_serving(),
        ServerEvent::AsideStarted | ServerEvent::Tick { .. } | ServerEvent::Disconnected { .. } => {
        }
    }
}

fn end_loading(module: &mut Module) {
    module.rebuild.set_loading(false);
    module.indexes.end_loading();
}

fn flush(module: &mut Module, context: &Context, database: Option<i32>) {
    module.forget_numbers(Timestamp::from_unix_ms(context.unix_ms()));
    module.indexes.drop(database);
    module.rebuild.cancel(database);
    module.drop_turns(database);
}

fn swap(module: &mut Module, first: i32, second: i32) {
    keyspace::swap(first, second);
    module.indexes.swap(first, second);
    module.rebuild.swap(first, second);
    module.restart_database(first);
    module.restart_database(second);
}
