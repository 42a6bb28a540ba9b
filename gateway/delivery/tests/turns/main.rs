//! Turns of serial sessions in virtual time, with the real table of delegations at each gateway and the real rules of
//! turns in the store.
//!
//! [`world`] runs the events of all, over the [`links`] between gateways and the [`store`]; [`faults`] disturbs them.
//! [`gateway`] is a driver of the table in small, of which [`calls`] is the way of a call. [`clients`] call, and
//! [`checks`] has what is promised:
//!
//! * Of a session at most one call is written to its upstream server while another runs, with the exceptions of
//!   [`checks::Exception`].
//! * Once a recall has reached a gateway, no further call begins under the delegation. A caller that waits is known to
//!   the gateway within [`checks::RECALLED_WITHIN`].
//! * The delegations of a killed gateway end with its connection for events.
//! * Every call ends, and at the end nothing is held.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "tests fail by panicking, and a failed test shows what it printed"
)]

mod calls;
#[path = "../simulation/chance.rs"]
mod chance;
mod checks;
mod clients;
mod faults;
mod gateway;
mod links;
#[path = "../simulation/seeds.rs"]
mod seeds;
mod store;
mod storms;
mod world;
