//! Extracts session id, result, error mark and progress from an agent's output, as specified by the settings'
//! [`OutputRules`](mooring_settings::OutputRules).

mod document;
mod json_value;
mod progress;
mod reader;
mod truncated_text;

pub(crate) use reader::{Findings, OutputReader};
