//! Dispatch: one client message to the instance its session is bound to, and the reply back.
//!
//! Invariant: a call that may have run is not sent a second time, unless its tool says that repeating it does no harm;
//! then the client is told that it may have run.

mod abandoned;
mod annotations;
mod ask;
mod deliver;
mod events;
mod messages;
mod ordered;
mod relay;
mod reply;
mod seals;

pub use abandoned::SILENT_MAX;
pub use ask::{Asked, Question, ask};
pub use deliver::{Call, DeliverError, Delivered, OnLoss, Repeat, deliver};
pub use events::{Answering, Caller};
pub use messages::{ReadError, ReplyMessages};
pub use ordered::{Ordered, withdraw};
pub use relay::{Lasting, Relay, RelayError};
pub use reply::{BodyError, RelayOptions, ReplyBody, relay_call, relay_shared, relay_stream};
pub use seals::Seals;
