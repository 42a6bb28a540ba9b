//! `libmooring.so`: the Redis module that owns session state.
//!
//! The rules are in another crate, `mooring-session`, which does not depend on Redis. This one runs them in a server:
//! it parses arguments, reads the record, applies a rule, writes and replicates what changed, and replies.
//!
//! Where to find what:
//! * [`commands`]: one file per command, and the table of them. [`command_spec`]: what a row of the table has.
//! * [`load`]: what is registered with Redis. [`callbacks`]: what Redis calls besides commands.
//! * [`handler`]: the boundary where errors of commands end. [`guard`]: the one where panics end. [`failure`]: errors and
//!   their codes.
//! * [`arguments`], [`record_io`], [`reply`]: how a command parses its arguments, changes a record and replies.
//! * [`module`]: the state in memory. Its parts know nothing of it: [`node_time`], [`field_names`], [`counters`],
//!   [`indexes`], [`rebuild`], [`blocked_clients`], [`event_connections`], [`tick_schedule`].
//! * [`moment`], [`node`], [`rule_inputs`]: the inputs of a rule besides the record and the request.
//! * [`keyspace`], [`index_walk`], [`events`]: keep the indexes equal to the records, also after writes of other clients.
//! * [`housekeeping`]: periodic work. [`worker_wait`]: blocked clients. [`claims`]: who is notified of a claim's outcome.
//!   [`figures`]: what INFO reports. [`settings`]: the module's settings.
//!   [`setting`]: the value of one.
//! * `reference`: docs/commands.md and docs/commands/; a test keeps them equal to the tables.
//! * [`ffi`]: every call of the server's API, and all `unsafe` code.

mod arguments;
mod blocked_clients;
mod callbacks;
mod claims;
mod command_spec;
mod commands;
mod counters;
mod digest;
mod event_connections;
mod events;
mod failure;
mod ffi;
mod field_names;
mod figures;
#[cfg(fuzzing)]
pub mod fuzzing;
mod grammar;
mod guard;
mod handler;
mod housekeeping;
mod index_walk;
mod indexes;
mod keyspace;
mod load;
mod module;
mod moment;
mod node;
mod node_time;
mod rebuild;
mod record_io;
#[cfg(test)]
mod reference;
mod reply;
mod rule_inputs;
mod setting;
mod settings;
mod tick_schedule;
mod worker_wait;

use ffi::loading::ModuleIdentity;

ffi::loading::entry_points!(
    &ModuleIdentity {
        name: c"mooring",
        version: 100,
    },
    callbacks::load_module,
    &callbacks::ModuleCallbacks
);
