//! Connections that live in one worker, over a fleet: state kept through any worker, one connection for each session, and
//! what becomes of both where the worker that owns them, the server or the store goes away.

mod announced;
mod away;
mod drain;
mod endings;
mod failed_over;
mod frozen;
mod idle;
mod killed;
mod long_messages;
mod moved;
pub(crate) mod rig;
mod servers;
mod streams;
