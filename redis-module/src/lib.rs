//! `libmooring.so`: the Redis module that owns session state.
//!
//! The rules are in another crate, `mooring-session`, which does not depend on Redis. This one runs them in a server:
//! it parses arguments, reads the record, applies a rule, writes and replicates what changed, and replies.
//!
//! Where to find what:
//! * [`commands`]: one file per command, and the table of them. [`registrar`] registers the table with Redis.
//! * [`handler`]: the boundary where panics and errors end. [`failure`]: errors and their codes.
//! * [`arguments`], [`record_io`], [`reply`]: how a command parses its arguments, changes a record and replies.
//! * [`module`]: the state in memory. Its parts know nothing of it: [`node_time`], [`field_names`], [`counters`],
//!   [`indexes`], [`rebuild`], [`blocked_clients`], [`tick_schedule`].
//! * [`moment`], [`node`], [`rule_inputs`]: the inputs of a rule besides the record and the request.
//! * [`keyspace`], [`index_walk`], [`events`]: keep the indexes equal to the records, also after writes of other clients.
//! * [`housekeeping`]: periodic work. [`worker_wait`]: blocked clients. [`claims`]: who is notified of a claim's outcome.
//!   [`figures`]: what INFO reports. [`settings`]: the module's settings.
//! * `reference`: docs/commands.md and docs/commands/; a test keeps them equal to the tables.
//! * [`ffi`]: every call of the server's API, and all `unsafe` code.

mod arguments;
mod blocked_clients;
mod claims;
mod commands;
mod counters;
mod digest;
mod events;
mod failure;
mod ffi;
mod field_names;
mod figures;
#[cfg(fuzzing)]
pub mod fuzzing;
mod grammar;
mod handler;
mod housekeeping;
mod index_walk;
mod indexes;
mod keyspace;
mod module;
mod moment;
mod node;
mod node_time;
mod rebuild;
mod record_io;
#[cfg(test)]
mod reference;
mod registrar;
mod reply;
mod rule_inputs;
mod settings;
mod tick_schedule;
mod worker_wait;

use std::ffi::{CStr, c_int};

use ffi::loading::{LoadError, Loading};
use ffi::{Arguments, Level, Text};

/// The module's name: the prefix of its settings and of its INFO section.
const NAME: &CStr = c"mooring";

/// The module's version as Redis shows it: major, minor and patch, two digits each.
const VERSION: c_int = 100;

/// Why the module was not loaded.
#[derive(Debug, thiserror::Error)]
enum StartError {
    #[error(transparent)]
    Server(#[from] LoadError),
    #[error(transparent)]
    Arguments(#[from] settings::SettingError),
    #[error(
        "this server has no command {0:?}, by which replicas and the append-only file follow the module: \
         remove its rename-command"
    )]
    MissingEffect(&'static CStr),
}

/// Registers the module with a server: settings, commands, INFO.
fn load(loading: &Loading<'_>, arguments: Arguments<'_>) -> Result<(), StartError> {
    if let Some(command) = loading.context().missing_effect() {
        return Err(StartError::MissingEffect(command));
    }
    settings::take_arguments((0..).map_while(|n| arguments.get(n)).map(Text::as_bytes))?;
    for setting in settings::SETTINGS {
        loading.register_setting(setting)?;
    }
    loading.register_text_setting(&settings::prefixes::SETTING)?;
    loading.register_switch(&settings::QUIESCE)?;
    loading.read_settings()?;
    settings::QUIESCE.set(false);
    loading.set_options();
    module::Module::install();
    registrar::register(loading, commands::TABLE)?;
    loading.register_report()?;
    loading.subscribe()?;
    module::Module::begin(loading.context());
    warn_of_wide_hashes(loading);
    Ok(())
}

/// The longest value of all but unusual records: that of a binding. If the server converts hashes with such values into
/// tables, a session takes 1.4 times the memory.
const LISTPACK_VALUE_BYTES_WANTED: u64 = 512;

fn warn_of_wide_hashes(loading: &Loading<'_>) {
    let context = loading.context();
    let value = context.server_setting(c"hash-max-listpack-value");
    let bytes = value
        .and_then(|value| String::from_utf8(value).ok())
        .and_then(|value| value.parse::<u64>().ok());
    if let Some(bytes) = bytes.filter(|bytes| *bytes < LISTPACK_VALUE_BYTES_WANTED) {
        let line = format!(
            "hash-max-listpack-value is {bytes}: sessions with longer values take 1.4 times the memory; \
             {LISTPACK_VALUE_BYTES_WANTED} is required"
        );
        context.log(Level::Warning, &line);
    }
}
