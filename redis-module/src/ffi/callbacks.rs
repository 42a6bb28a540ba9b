//! What the server calls in the module, besides commands, and besides settings and the steps of scans, which the boundary
//! guards itself. It knows the rest by this trait alone.

use std::sync::OnceLock;

use super::{BlockedId, ClientId, Context, Report};

/// What happened to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyEvent {
    /// It was loaded from a file or a stream: at a start, in a full synchronization, or by DEBUG RELOAD.
    Loaded,
    /// A command or a deadline changed it.
    Changed,
    /// It was restored from what DUMP made, as by MIGRATE.
    Restored,
    /// A command changed fields of its hash, and the key still exists.
    FieldsChanged,
    /// It was deleted or expired: the key does not exist any more.
    Gone,
    /// It was evicted, to free memory.
    Evicted,
}

/// What happened to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerEvent {
    /// All keys of a database, or of every database, are about to be deleted.
    Flushing {
        /// The database; `None` for all.
        database: Option<i32>,
    },
    /// Two databases were swapped.
    Swapped {
        /// The first.
        first: i32,
        /// The second.
        second: i32,
    },
    /// The data is about to be loaded, in place.
    LoadingStarted,
    /// The data was loaded.
    LoadingEnded,
    /// Loading failed: the keys loaded so far exist or are about to be flushed.
    LoadingFailed,
    /// A full synchronization starts to load data while the previous data is served.
    AsideStarted,
    /// The loaded data has replaced the previous data.
    AsideCompleted,
    /// The loaded data was discarded.
    AsideAborted,
    /// This node became a primary.
    Promoted,
    /// This node became a replica.
    Demoted,
    /// The connection of a client was closed.
    Disconnected {
        /// The client.
        client: ClientId,
    },
    /// The server's own clock ticked.
    Tick {
        /// How often it ticks in a second.
        hz: u64,
    },
}

/// What the server calls, on one thread at a time. No panic may leave a function.
pub(crate) trait Callbacks: Sync {
    /// Frees the module's state, before it is unloaded.
    fn unload(&self, context: &Context);

    /// A key was loaded or changed.
    fn key_changed(&self, context: &Context, what: KeyEvent, key: &[u8]);

    /// An event of the server.
    fn server_changed(&self, context: &Context, event: ServerEvent);

    /// The timer fired.
    fn ring(&self, context: &Context);

    /// A client that was blocked is to get its reply.
    fn wake(&self, context: &Context, client: BlockedId);

    /// A client that was blocked has disconnected.
    fn on_client_gone(&self, client: BlockedId);

    /// A switch was set.
    fn switch_set(&self, context: &Context);

    /// Writes the module's section of INFO.
    fn report(&self, report: &Report);
}

/// Set when the module is loaded, before the server can call anything else.
static CALLBACKS: OnceLock<&'static dyn Callbacks> = OnceLock::new();

/// Installs the module's callbacks, unless an earlier load did.
pub(super) fn install(callbacks: &'static dyn Callbacks) {
    let _ = CALLBACKS.set(callbacks);
}

/// Calls the module.
pub(super) fn call(step: impl FnOnce(&dyn Callbacks)) {
    if let Some(callbacks) = CALLBACKS.get() {
        step(*callbacks);
    }
}
