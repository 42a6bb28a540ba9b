//! GET: what stands there. Touches nothing.

use crate::context::Context;
use crate::record::Record;
use crate::refusal::Refusal;
use crate::view::RecordView;

/// The record, tombstones included: it is for operators, and they want to see what is left.
///
/// # Errors
/// `NOSESSION` where there is no record at all.
pub fn get(slot: Option<&Record>, context: &Context<'_>) -> Result<RecordView, Refusal> {
    slot.map(|record| RecordView::of(record, context))
        .ok_or(Refusal::NoSession)
}
