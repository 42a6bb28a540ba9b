//! The metric of log lines that were not written.

use metrics::counter;
use strum::VariantArray as _;

metrics! {
    pub(super) fn describe;
    /// Log lines that were not written, by reason.
    LOST = counter("mooring_log_lines_lost_total").zero("reason", LogLoss::VARIANTS);
}

/// Why a log line was not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum LogLoss {
    /// There were too many of its kind; they are counted in a line.
    Repeated,
    /// stderr was not read, and the queue of lines was full.
    Unread,
}

/// A log line was not written.
pub fn log_line_lost(reason: LogLoss) {
    counter!(LOST, "reason" => <&'static str>::from(reason)).increment(1);
}
