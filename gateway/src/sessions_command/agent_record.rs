//! The parent and last use in the labels of an agent's session.

use std::collections::BTreeMap;

use mooring_session::limits::LABEL_VALUE_BYTES_MAX;
use mooring_session::names::{LabelName, LabelValue};
use mooring_session::view::RecordView;

use mooring_agent::place::{LAST_RUN_LABEL, PARENT_LABEL};
use mooring_agent::session_file::{Entry, PARENT_BYTES_MAX};
use mooring_store as store;

/// Marks a last use that came from an import and not from a run.
const IMPORTED: &str = "imported";

/// The labels of an imported entry.
pub(super) fn labels(entry: &Entry) -> BTreeMap<LabelName, LabelValue> {
    // What was read is never longer than a label may be.
    const { assert!(PARENT_BYTES_MAX <= LABEL_VALUE_BYTES_MAX) };
    let last_run = format!("{} {IMPORTED}", entry.updated_at_ms);
    store::labels(&[
        (PARENT_LABEL.as_bytes(), &entry.parent),
        (LAST_RUN_LABEL.as_bytes(), &last_run),
    ])
}

/// The parent as the client named it.
pub(super) fn parent(record: &RecordView) -> Option<&str> {
    label(record, PARENT_LABEL)
}

fn label<'r>(record: &'r RecordView, name: &str) -> Option<&'r str> {
    let mut labels = record.labels.iter();
    labels
        .find(|(known, _)| known.as_str() == name)
        .map(|(_, value)| value.as_str())
}

/// The end of the last run; if there was none, the record's last use.
pub(super) fn used_at_ms(record: &RecordView) -> u64 {
    let noted = label(record, LAST_RUN_LABEL).and_then(|run| run.split(' ').next()?.parse().ok());
    noted.unwrap_or_else(|| record.last_used_at.unix_ms())
}
