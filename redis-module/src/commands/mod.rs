//! The commands, one file each, and the table of them.
//!
//! Every command parses its arguments, applies one rule and replies, in that order, so that bad input changes nothing.
//! docs/commands/ describes the commands and is generated from this table.

mod beat;
mod bind;
mod claim;
mod confirm;
mod count;
mod create;
mod end;
mod enter;
mod explain;
mod forget;
mod get;
mod gone;
#[cfg(fuzzing)]
mod grammars;
mod help;
mod kill;
mod leave;
mod list;
mod rate;
mod reap;
mod rebind;
mod reindex;
mod route;
mod routing;
mod stats;
mod touch;
mod turn;
mod unbind;
mod wait;
mod workers;

#[cfg(fuzzing)]
pub(crate) use grammars::parse;

use crate::command_spec::CommandSpec;

/// All commands, in the order of the reference page.
pub(crate) static TABLE: &[CommandSpec] = &[
    create::SPEC,
    touch::SPEC,
    get::SPEC,
    explain::SPEC,
    end::SPEC,
    kill::SPEC,
    route::SPEC,
    bind::SPEC,
    confirm::SPEC,
    rebind::SPEC,
    unbind::SPEC,
    enter::SPEC,
    leave::SPEC,
    list::SPEC,
    count::SPEC,
    reap::SPEC,
    claim::SPEC,
    forget::SPEC,
    rate::SPEC,
    reindex::SPEC,
    stats::SPEC,
    help::SPEC,
    beat::SPEC,
    wait::SPEC,
    workers::SPEC,
    gone::SPEC,
];
