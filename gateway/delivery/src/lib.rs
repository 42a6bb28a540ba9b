//! How a message reaches its upstream session: which binding it takes, what counts as a loss, who moves a lost binding,
//! and whether the message is sent again.
//!
//! Machines without I/O, clock and randomness. A driver performs what a machine asks for and tells it the outcome;
//! replies of the store and of upstream servers, time and tokens are arguments. The router is the driver of the gateway;
//! `tests/simulation` drives the same machines over a virtual network.
//!
//! [`Delivery`] is one message. It resolves the binding, sends, and judges what comes back:
//!
//! | state | action | outcome | then |
//! |---|---|---|---|
//! | resolving | [`Action::Resolve`], steps of the table below | a binding | sending; after an attempt that may have run, only if that is harmless |
//! | | | none | failed |
//! | sending | [`Action::Send`] | an answer | answered; reading if it looks like one to an unknown session |
//! | | | the instance refuses connections, or the owned connection has ended | the binding is lost |
//! | | | no connection | waiting, then resolving; failed after 10 s, and at once if there is no other instance |
//! | | | no connection for long | probing the others |
//! | | | the owner does not serve it | waiting, then resolving; failed after 15 s |
//! | | | the owner does not have the connection, again | the binding is lost |
//! | | | the connection broke | probing: it may have run |
//! | | | the connection to the owner broke | waiting, then resolving: it may have run |
//! | reading | [`Action::Read`] | the session is unknown | probing: it has not run |
//! | probing | [`Action::Probe`] | the session or its instance is lost | the binding is lost |
//! | | | alive or unclear | answered; after a broken connection sending again, only if that is harmless |
//! | probing the others | [`Action::ProbeOthers`] | one answers | the binding is lost |
//! | | | none does | failed |
//! | reading the tool | [`Action::ReadTool`] | repeatable | sending |
//! | | | not | failed: the outcome is unknown |
//! | | | the instance refuses connections | the binding is lost: it may have run |
//! | the binding is lost | | | resolving; failed for messages without a reply |
//!
//! [`Delegations`] has the turns that this gateway may give to its calls without asking the store; its file has the table
//! of states. [`SharedRoutes`] has the bindings of servers whose calls have no turns.
//!
//! [`Resolution`] is the way to a binding:
//!
//! | state | task | outcome | then |
//! |---|---|---|---|
//! | routing | [`Task::Route`] | ready | ended |
//! | | | unbound | a token, then binding |
//! | | | claimed by another attempt | watching, routing, then waiting and routing until it gives up |
//! | | | lost | recovering |
//! | recovering | [`Task::EndSession`] | by the server's policy | failed |
//! | | [`Task::RenewAtOwner`] | the live owner was asked | routing |
//! | | [`Task::Rebind`] | won | initializing |
//! | | | another attempt won, or a live owner has it | routing |
//! | binding | [`Task::Bind`] | won | initializing |
//! | | | another attempt won | routing |
//! | initializing | [`Task::Initialize`] | initialized | confirming |
//! | | | the instance does not answer | moving the claim; giving up if all were tried |
//! | | | the instance refuses | giving up |
//! | moving the claim | [`Task::Rebind`] | won | initializing |
//! | confirming | [`Task::Confirm`] | confirmed | restoring, then ended |
//! | | | not | discarding the new upstream session, then routing or failed |
//! | giving up | [`Task::Unbind`] or [`Task::LetLapse`] | | failed |

mod commands;
mod delegation;
mod delivery;
mod facts;
mod lookup;
mod loss;
mod message;
mod resolution;
mod shared_routes;
mod task;

pub use delegation::{
    BootTime, Delegations, LostWakeUps, TERM_MARGIN, Term, TurnBeginning, UNUSED_MAX,
    WAKE_UPS_SEEN_WITHIN, WakeUps,
};
pub use delivery::{ATTEMPTS_MAX, Delivery, UNREACHED_WITHIN};
pub use facts::{Errors, Facts, Instances, OnLoss};
pub use loss::{Loss, LostBinding, StateLoss};
pub use message::{
    Action, DeliveryOutcome, Event, Failure, MessageRules, ProbeOutcome, Repetition, SendFault,
    ToolReading,
};
pub use resolution::Resolution;
pub use shared_routes::{RouteBeginning, SharedRoutes};
pub use task::{Claim, InitializeFailure, ResolveFailure, ResolvedBinding, Task, TaskOutcome};
