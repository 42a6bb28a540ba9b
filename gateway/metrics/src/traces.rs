//! The metrics of spans on their way to the collector.

use metrics::counter;
use strum::VariantArray as _;

metrics! {
    pub(super) fn describe;
    /// Spans that the collector has accepted.
    EXPORTED = counter("mooring_spans_exported_total").zero();
    /// Spans that were dropped, by reason.
    DROPPED = counter("mooring_spans_dropped_total").zero("reason", SpanLoss::VARIANTS);
}

/// Why a span was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum SpanLoss {
    /// The queue to the collector was full.
    QueueFull,
    /// The collector could not be reached, or refused it.
    ExportFailed,
}

/// The collector has accepted so many spans.
pub fn spans_exported(count: usize) {
    counter!(EXPORTED).increment(u64::try_from(count).unwrap_or(u64::MAX));
}

/// So many spans were dropped.
pub fn spans_dropped(reason: SpanLoss, count: usize) {
    let count = u64::try_from(count).unwrap_or(u64::MAX);
    counter!(DROPPED, "reason" => <&'static str>::from(reason)).increment(count);
}
