//! GET: the record. It does not count as a use.

use crate::context::Context;
use crate::record::Record;
use crate::refusal::Refusal;
use crate::view::RecordView;

/// The record, tombstones included: operators need to see what is left.
///
/// # Errors
/// `NOSESSION` if there is no record.
pub fn get(slot: Option<&Record>, context: &Context<'_>) -> Result<RecordView, Refusal> {
    slot.map(|record| RecordView::of(record, context))
        .ok_or(Refusal::NoSession)
}
