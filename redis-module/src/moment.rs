//! When and where a command runs.

use mooring_session::time::Timestamp;

use crate::ffi::{Context, Text};

/// When and where a command runs: every command reads the wall clock once.
#[derive(Clone, Copy)]
pub(crate) struct Moment<'c> {
    /// The wall clock.
    pub(crate) now: Timestamp,
    /// The database of its key.
    pub(crate) database: i32,
    /// Its key.
    pub(crate) key: Text<'c>,
}

impl<'c> Moment<'c> {
    /// Now, in the database that the client has selected.
    pub(crate) fn of(context: &Context, key: Text<'c>) -> Self {
        Self {
            now: Timestamp::from_unix_ms(context.unix_ms()),
            database: context.database(),
            key,
        }
    }
}
