//! Dispatch: one client message to the instance its session is bound to, and the reply back.
//!
//! Invariant: a call that may have run is not sent again, unless its tool is annotated as safe to repeat; otherwise the
//! client gets an error saying that the call may have run.

mod abandoned;
mod annotations;
mod deliver;
mod event_filter;
mod gateway_request;
mod relay;
mod reply;
mod seals;

pub use abandoned::{READ_MAX, SILENT_MAX};
pub use deliver::{Call, DeliverError, DeliveryResult, OnLoss, RetrySafety, deliver};
pub use event_filter::Caller;
pub use gateway_request::{GatewayReply, GatewayRequest, send_gateway_request};
pub use relay::{ReplyGuards, UpstreamSource};
pub use reply::{RelayFuture, RelayOptions, relay_call, relay_shared, relay_stream};
pub use seals::Seals;
