//! Output that is too long for a model: the answer has its head and its tail, and a file of the session has all of it.
//!
//! Invariant: the file is written under the lock of the run's session, after its commit, within the session's limits;
//! where it cannot be written, the answer says why.

use mooring_sandbox::tree::{self, SessionDirectory, TreeError, VirtualPath};
use mooring_sandbox::{Limits, Output};

use crate::records::RunId;

/// Most bytes that an answer has of a run's output, and of its error output.
pub(super) const ANSWER_BYTES_MAX: usize = 30_000;
/// Bytes of each end that are answered of a longer output.
const END_BYTES: usize = ANSWER_BYTES_MAX / 2 - MARK_BYTES_MAX / 2;
/// Room for the mark between both ends.
const MARK_BYTES_MAX: usize = 1_000;

/// Where an output is, in words, or why it is nowhere.
#[derive(Debug)]
pub(super) struct SavedOutput(Result<String, String>);

impl SavedOutput {
    /// Not saved, and this says why.
    pub(super) fn not_saved(reason: &str) -> Self {
        Self(Err(reason.to_owned()))
    }
}

/// Whether an answer has not all of an output.
pub(super) const fn is_long(output: &Output) -> bool {
    output.bytes.len() > ANSWER_BYTES_MAX
}

/// Writes an output to a file of `/results`. The caller holds the session's lock. Blocks.
pub(super) fn save(
    session: &SessionDirectory,
    stream: &str,
    run: &RunId,
    output: &Output,
    limits: &Limits,
) -> SavedOutput {
    let name = format!("/results/{stream}-{run}.txt");
    let written = VirtualPath::parse(&name)
        .map_err(|error| error.to_string())
        .and_then(|path| {
            tree::write(session, &path, &output.bytes, limits).map_err(|error| match error {
                TreeError::System { source, .. } => format!("the gateway's volume: {source}"),
                error => error.to_string(),
            })
        });
    SavedOutput(written.map(|_| {
        if output.is_truncated() {
            format!("its first {} bytes are in {name}", output.bytes.len())
        } else {
            format!("all of it is in {name}")
        }
    }))
}

/// Both ends of a long output, and a mark between them that names the file with all of it. None if the output is short.
pub(super) fn abridged(text: &str, saved: Option<&SavedOutput>) -> Option<String> {
    if text.len() <= ANSWER_BYTES_MAX {
        return None;
    }
    let head_end = text.floor_char_boundary(END_BYTES);
    let tail_start = text.ceil_char_boundary(text.len().saturating_sub(END_BYTES));
    let head = text.get(..head_end).unwrap_or_default();
    let tail = text.get(tail_start..).unwrap_or_default();
    let left_out = tail_start.saturating_sub(head_end);
    let all = match saved {
        Some(SavedOutput(Ok(place))) => place.clone(),
        Some(SavedOutput(Err(reason))) => {
            let reason: String = reason.chars().take(MARK_BYTES_MAX / 8).collect();
            format!("it could not be written to /results: {reason}")
        }
        None => "it was not written to /results".to_owned(),
    };
    Some(format!(
        "{head}\n[... {left_out} of {} bytes left out; {all} ...]\n{tail}",
        text.len()
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    #[test]
    fn a_long_output_keeps_both_ends_and_says_where_all_of_it_is() {
        assert_eq!(abridged(&"x".repeat(ANSWER_BYTES_MAX), None), None);
        let text = format!("first\n{}last\n", "ä".repeat(ANSWER_BYTES_MAX));
        let saved = SavedOutput(Ok("all of it is in /results/output-1.txt".to_owned()));
        let answer = abridged(&text, Some(&saved)).unwrap();
        assert!(answer.len() <= ANSWER_BYTES_MAX, "{}", answer.len());
        assert!(answer.starts_with("first\n") && answer.ends_with("last\n"));
        assert!(answer.contains("of 60011 bytes left out; all of it is in /results/output-1.txt"));
        let lost = SavedOutput::not_saved(&"ö".repeat(5_000));
        let answer = abridged(&text, Some(&lost)).unwrap();
        assert!(answer.len() <= ANSWER_BYTES_MAX, "{}", answer.len());
        assert!(answer.contains("could not be written to /results: ö"));
    }
}
