//! CLAIM and FORGET: one worker cleans up a tombstone, then drops it.

use super::end::check_idle;
use crate::context::{Context, Decision, RecordChange};
use crate::names::WorkerId;
use crate::record::{Cleaning, Record, SessionState};
use crate::refusal::{Busy, Refusal, Stale};
use crate::time::Millis;
use crate::view::RecordView;

/// What CLAIM asks for.
#[derive(Clone, Debug)]
pub struct ClaimRequest {
    /// Who wants to clean.
    pub worker: WorkerId,
    /// For how long nobody else may.
    pub lease: Millis,
}

/// What FORGET asks for.
#[derive(Clone, Debug)]
pub struct ForgetRequest {
    /// The incarnation that was cleaned.
    pub generation: u64,
    /// Who cleaned it.
    pub worker: WorkerId,
}

/// Takes a tombstone for cleaning. The same worker asking again renews its lease.
///
/// # Errors
/// `NOSESSION`; `BUSY` where the session is active, a claim on one of its bindings is live, a turn of it is held, or
/// another worker cleans.
pub fn claim(
    slot: &mut Option<Record>,
    request: &ClaimRequest,
    context: &Context<'_>,
) -> Result<Decision<RecordView>, Refusal> {
    let record = slot.as_mut().ok_or(Refusal::NoSession)?;
    if record.lifetime.state(context.now) == SessionState::Active {
        return Err(Refusal::Busy(Busy::Active));
    }
    check_idle(record, context)?;
    if let Some(cleaning) = &record.cleaning {
        let is_other = cleaning.worker.as_ref() != Some(&request.worker);
        if is_other && cleaning.is_live(context.now) {
            return Err(Refusal::Busy(Busy::Cleaning));
        }
    }
    record.cleaning = Some(Cleaning {
        worker: Some(request.worker.clone()),
        lease_until: context.now.plus(request.lease),
    });
    let reply = RecordView::of(record, context);
    Ok(Decision::new(reply, RecordChange::Record))
}

/// Drops the tombstone, and answers the least floor under which no number of a new record under this key may fall.
///
/// # Errors
/// `NOSESSION`; `STALE` unless the caller holds the cleaning of exactly this incarnation, or nobody by name does: the
/// cleaning that END gave to its caller, who says only now who that is.
pub fn forget(
    slot: &mut Option<Record>,
    request: &ForgetRequest,
    context: &Context<'_>,
) -> Result<Decision<u64>, Refusal> {
    let record = slot.as_ref().ok_or(Refusal::NoSession)?;
    let holds = record
        .cleaning
        .as_ref()
        .is_some_and(|cleaning| match &cleaning.worker {
            Some(worker) => *worker == request.worker,
            None => true,
        });
    let is_tombstone = record.lifetime.state(context.now) != SessionState::Active;
    if record.generation != request.generation || !holds || !is_tombstone {
        return Err(Refusal::Stale(Stale::Generation));
    }
    let floor = record.numbers_to_follow(context.now);
    *slot = None;
    Ok(Decision::new(floor, RecordChange::Removed))
}
