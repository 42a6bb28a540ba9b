//! What is found in the output of an agent: its session id, its result, its error mark and its progress, where the
//! settings' [`OutputRules`](mooring_settings::OutputRules) say they stand.

mod document;
mod json_value;
mod progress;
mod reader;
mod truncated_text;

pub use document::DOCUMENT_BYTES_MAX;
pub use progress::PROGRESS_BYTES_MAX;
pub use reader::{Findings, OutputReader};
