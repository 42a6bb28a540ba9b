//! Reports messages of a server that are dropped.

use std::fmt::Display;

use mooring_metrics as metrics;

/// Counts a dropped message and logs it with the reason.
pub fn report_dropped_message(what: &'static str, why: impl Display) {
    metrics::upstream_message_dropped();
    tracing::warn!(%why, "{what}");
}
