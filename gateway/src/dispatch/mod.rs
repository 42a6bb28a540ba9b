//! Dispatch: one client message to the instance its session is bound to, and the reply back.
//!
//! Invariant: a call that may have run is not sent a second time, unless its tool says that repeating it does no harm;
//! then the client is told that it may have run.

mod annotations;
mod deliver;
mod events;
mod relay;
mod reply;

pub use deliver::{Call, DeliverError, Delivered, OnLoss, Repeat, deliver};
pub use events::{Answering, Caller};
pub use relay::{Relay, RelayError};
pub use reply::{RelayOptions, ReplyBody, empty, relay_call, relay_shared, relay_stream};
