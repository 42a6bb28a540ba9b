//! Who wants something of the fleet, since when, and why.

use schemars::JsonSchema;
use serde::Serialize;

use mooring_store::OperatorNote;

/// Who wants it, since when, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct NoteView {
    /// The operator.
    pub by: String,
    /// Since when (RFC 3339).
    pub at: String,
    /// Why; empty if they gave no reason.
    pub note: String,
}

impl NoteView {
    pub(crate) fn of(note: &OperatorNote) -> Self {
        Self {
            by: note.by.to_string(),
            at: note.at(),
            note: note.note.to_string(),
        }
    }
}
