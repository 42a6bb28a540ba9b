//! CLAIM and FORGET: one worker cleans up a tombstone, then drops it.

use super::end::check_idle;
use crate::context::{Context, Decision, RecordChange};
use crate::names::WorkerId;
use crate::record::{Cleaning, Record, SessionState};
use crate::refusal::{Busy, Refusal, Stale};
use crate::time::Millis;
use crate::view::RecordView;

/// The request of CLAIM.
#[derive(Clone, Debug)]
pub struct ClaimRequest {
    /// The worker that wants to clean up.
    pub worker: WorkerId,
    /// For how long no other worker may.
    pub lease: Millis,
}

/// The request of FORGET.
#[derive(Clone, Debug)]
pub struct ForgetRequest {
    /// The generation that was cleaned up.
    pub generation: u64,
    /// The worker that cleaned it up.
    pub worker: WorkerId,
}

/// Takes a tombstone for cleanup. The same worker renews its lease by asking again.
///
/// # Errors
/// `NOSESSION`; `BUSY` if the session is active, a claim on one of its bindings is live, a turn of it is held, or
/// another worker is cleaning it up.
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

/// Drops the tombstone, and returns the floor for the numbers of a new record under this key.
///
/// # Errors
/// `NOSESSION`; `STALE` unless the caller holds the cleanup of exactly this generation, or the holder has no name: END
/// grants the cleanup to its caller, which names itself only here.
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
