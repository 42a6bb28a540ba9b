//! END and KILL: end a session. Its tombstone keeps what has to be cleaned up.

use super::authorize;
use crate::context::{Context, Decision, RecordChange};
use crate::limits::END_CLEANING_LEASE;
use crate::names::Principal;
use crate::record::{Cleaning, Lifecycle, Record, SessionState};
use crate::refusal::{Busy, Refusal};
use crate::view::RecordView;

/// The request of END.
#[derive(Clone, Debug)]
pub struct EndRequest {
    /// The principal that must own the session; `None` for the operator's KILL.
    pub principal: Option<Principal>,
    /// Whether a session in use is ended.
    pub when: EndCondition,
}

/// When END may end a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndCondition {
    /// In any case.
    Always,
    /// Only without a live claim or a held turn.
    Idle,
}

/// The reply of END.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndReply {
    /// Whether this call ended it.
    pub ended_now: bool,
    /// The record with what it still holds. The caller that ended it cleans up, and has a lease for that.
    pub record: RecordView,
}

/// Ends the session. Ending twice is no error.
///
/// # Errors
/// `NOSESSION` (never created, or expired), `DENIED`; `BUSY` for [`EndCondition::Idle`] if the session is not idle.
pub fn end(
    slot: &mut Option<Record>,
    request: &EndRequest,
    context: &Context<'_>,
) -> Result<Decision<EndReply>, Refusal> {
    let record = slot.as_mut().ok_or(Refusal::NoSession)?;
    if let Some(principal) = &request.principal {
        authorize(&record.principal, principal)?;
    }
    let ended_now = match record.lifetime.state(context.now) {
        SessionState::Expired => return Err(Refusal::NoSession),
        SessionState::Ended => false,
        SessionState::Active => true,
    };
    if ended_now {
        if request.when == EndCondition::Idle {
            check_idle(record, context)?;
        }
        record.lifetime.lifecycle = Lifecycle::Ended;
        // The end counts as the last use: the tombstone outlives every number assigned before it, however short the
        // settings make it.
        record.lifetime.last_used_at = context.now.max(record.lifetime.last_used_at);
        record.lifetime.expires_at = record.lifetime.last_used_at;
        record.cleaning = Some(Cleaning {
            worker: None,
            lease_until: context.now.plus(END_CLEANING_LEASE),
        });
    }
    let reply = EndReply {
        ended_now,
        record: RecordView::of(record, context),
    };
    let written = if ended_now {
        RecordChange::Record
    } else {
        RecordChange::Nothing
    };
    Ok(Decision::new(reply, written))
}

/// Checks that no claim on a binding of the session is live, and that no turn of it is held.
pub(super) fn check_idle(record: &Record, context: &Context<'_>) -> Result<(), Refusal> {
    if record.has_live_claim(context.now) {
        return Err(Refusal::Busy(Busy::Claim));
    }
    if context.node.holds_turn(None) {
        return Err(Refusal::Busy(Busy::Turn));
    }
    Ok(())
}
