//! The transitions, one file each.
//!
//! Every rule takes the slot of a key (`None`: no record), a request and a [`Context`]. It checks everything before it
//! changes the slot: a refusal leaves the slot unchanged.

mod bind;
mod cleaning;
mod confirm;
mod create;
mod end;
mod get;
mod rate;
mod rebind;
mod route;
mod touch;
mod unbind;

pub use bind::{BindReply, BindRequest, Ownership, bind};
pub use cleaning::{ClaimRequest, ForgetRequest, claim, forget};
pub use confirm::{ConfirmRequest, confirm};
pub use create::{CreateReply, CreateRequest, Creation, Revival, create, create_record};
pub use end::{EndCondition, EndReply, EndRequest, end};
pub use get::get;
pub use rate::{RateReply, RateRequest, TheoreticalArrivalTime, rate};
pub use rebind::{LossReport, RebindReply, RebindRequest, rebind};
pub use route::{
    ReplacedDriver, RouteReply, RouteRequest, RouteState, UnreportedLoss, UsedBinding, WorkerLost,
    route, route_binding,
};
pub use touch::{ReportedLoss, TouchReply, TouchRequest, touch, touch_lifetime};
pub use unbind::{UnbindRequest, unbind};

use crate::context::Context;
use crate::names::{Principal, ServerName};
use crate::record::{Binding, Record, SessionLifetime, SessionState};
use crate::refusal::{Refusal, Stale};

/// The first check of every command that names a principal, before anything else of the record is used.
fn authorize(owner: &Principal, principal: &Principal) -> Result<(), Refusal> {
    if owner == principal {
        Ok(())
    } else {
        Err(Refusal::Denied)
    }
}

/// The second check: the session is active.
fn require_active(lifetime: &SessionLifetime, context: &Context<'_>) -> Result<(), Refusal> {
    match lifetime.state(context.now) {
        SessionState::Active => Ok(()),
        SessionState::Ended => Err(Refusal::Ended),
        SessionState::Expired => Err(Refusal::NoSession),
    }
}

/// The record in the slot, if it is active and belongs to the principal.
fn active<'a>(
    slot: &'a mut Option<Record>,
    principal: &Principal,
    context: &Context<'_>,
) -> Result<&'a mut Record, Refusal> {
    let record = slot.as_mut().ok_or(Refusal::NoSession)?;
    authorize(&record.principal, principal)?;
    require_active(&record.lifetime, context)?;
    Ok(record)
}

/// The record's binding to `server` at exactly `epoch`.
fn binding_at<'a>(
    record: &'a mut Record,
    server: &ServerName,
    epoch: u64,
) -> Result<&'a mut Binding, Refusal> {
    record
        .bindings
        .get_mut(server)
        .filter(|binding| binding.epoch == epoch)
        .ok_or(Refusal::Stale(Stale::Binding))
}
