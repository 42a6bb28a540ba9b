//! The commands, one file each, and the table of them.
//!
//! Every command reads its arguments, applies one rule and replies, in that order, so that bad input changes nothing.
//! What they mean is said in docs/commands.md, which is made from this table.

mod beat;
mod bind;
mod confirm;
mod create;
mod end;
mod get;
mod gone;
mod kill;
mod rebind;
mod route;
mod stats;
mod touch;
mod unbind;
mod workers;

use crate::registrar::CommandSpec;

/// All commands, in the order of the reference page.
pub(crate) static TABLE: [CommandSpec; 14] = [
    create::SPEC,
    touch::SPEC,
    get::SPEC,
    end::SPEC,
    kill::SPEC,
    route::SPEC,
    bind::SPEC,
    confirm::SPEC,
    rebind::SPEC,
    unbind::SPEC,
    stats::SPEC,
    beat::SPEC,
    workers::SPEC,
    gone::SPEC,
];
