//! Reads an agent's output as it arrives, and keeps what the rules select.
//!
//! Invariant: however much is printed, memory holds one result of limited size and one session id; only a document,
//! which cannot be parsed before its end, is kept whole, up to [`super::document::DOCUMENT_BYTES_MAX`]. Output that does
//! not match the rules is not an error: nothing is extracted from it.

use std::sync::Arc;

use mooring_session::limits::UPSTREAM_SESSION_BYTES_MAX;

use super::document::Document;
use super::json_value::JsonValue;
use super::progress;
use super::truncated_text::TruncatedText;
use mooring_settings::{Condition, OutputForm, OutputRules, Results};

/// Between joined results.
const BLANK_LINE: &str = "\n\n";
/// Most of an agent's error text that is kept, in bytes.
const ERROR_BYTES_MAX: usize = 2_000;

/// What was extracted from the output of one run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Findings {
    /// The id by which the agent resumes: the last one in the output. Always valid in the store.
    pub session: Option<String>,
    /// The agent's answer.
    pub result: Option<String>,
    /// Whether its last error mark reports a failure.
    pub says_error: bool,
    /// The text of that failure: at most 2,000 bytes.
    pub error: Option<String>,
    /// Whether the result was truncated.
    pub is_cut: bool,
}

/// Reads the output of one run, line by line.
#[derive(Debug)]
pub(crate) struct OutputReader {
    rules: Arc<OutputRules>,
    document: Document,
    result: Option<TruncatedText>,
    result_bytes_max: usize,
    /// All but the result.
    findings: Findings,
}

impl OutputReader {
    /// A reader of an empty output. At most `result_bytes_max` bytes of the result are kept.
    pub(crate) fn new(rules: Arc<OutputRules>, result_bytes_max: usize) -> Self {
        Self {
            rules,
            document: Document::default(),
            result: None,
            result_bytes_max,
            findings: Findings::default(),
        }
    }

    /// Reads the next line, without its newline. Returns the progress text in it: one line of at most
    /// [`progress::PROGRESS_BYTES_MAX`] bytes.
    pub(crate) fn line(&mut self, line: &[u8]) -> Option<String> {
        match self.rules.form {
            OutputForm::Json => self.document.push(line),
            OutputForm::Text => self.text(line),
            OutputForm::JsonLines => {
                // Pointers select nothing in a value without members; this skips most warnings.
                let line = line.trim_ascii();
                if line.starts_with(b"{") || line.starts_with(b"[") {
                    let line = String::from_utf8_lossy(line);
                    return self.value(JsonValue::parse(&line)?);
                }
            }
        }
        None
    }

    /// Ends the output and returns the findings.
    pub(crate) fn finish(mut self) -> Findings {
        let document = std::mem::take(&mut self.document);
        document.look(|value| self.value(value));
        let (mut result, is_cut) = match self.result.map(TruncatedText::into_text) {
            Some((text, is_cut)) => (Some(text), is_cut),
            None => (None, document.is_too_long()),
        };
        if self.rules.form == OutputForm::Text {
            let text = result.unwrap_or_default();
            result = Some(text.trim_end().to_owned());
        }
        Findings {
            result,
            is_cut,
            ..self.findings
        }
    }

    fn text(&mut self, line: &[u8]) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        match &mut self.result {
            Some(result) => result.push("\n"),
            // Leading blank lines are not part of the result.
            None if line.trim_ascii().is_empty() => return,
            None => {}
        }
        self.result().push(&String::from_utf8_lossy(line));
    }

    /// Extracts what the rules select in a value; returns its progress text.
    fn value(&mut self, value: JsonValue<'_>) -> Option<String> {
        let rules = Arc::clone(&self.rules);
        let at = |pointer: &Option<_>| pointer.as_ref().and_then(|pointer| value.at(pointer));
        if let Some(session) = at(&rules.session_pointer).and_then(JsonValue::scalar)
            && is_session(&session)
        {
            self.findings.session = Some(session.into_owned());
        }
        if let Some(error) = at(&rules.error_pointer) {
            self.findings.says_error = error.is_said();
            self.findings.error = error.reason().map(|text| {
                let end = text.floor_char_boundary(ERROR_BYTES_MAX);
                text.get(..end).unwrap_or_default().to_owned()
            });
        }
        if all_met(value, &rules.result_where)
            && let Some(result) = at(&rules.result_pointer).and_then(JsonValue::text)
        {
            self.take_result(&result);
        }
        if !all_met(value, &rules.progress_where) {
            return None;
        }
        let progress = at(&rules.progress_pointer).and_then(JsonValue::scalar);
        progress.and_then(|text| progress::line(&text))
    }

    fn take_result(&mut self, text: &str) {
        let results = self.rules.results;
        let result = self.result();
        match results {
            Results::Last => result.clear(),
            Results::Joined if text.is_empty() || result.is_empty() => {}
            Results::Joined => result.push(BLANK_LINE),
        }
        result.push(text);
    }

    fn result(&mut self) -> &mut TruncatedText {
        let result_bytes_max = self.result_bytes_max;
        (self.result).get_or_insert_with(|| TruncatedText::new(result_bytes_max))
    }
}

fn all_met(value: JsonValue<'_>, conditions: &[Condition]) -> bool {
    conditions.iter().all(|condition| value.matches(condition))
}

/// Whether the store accepts it as a session of its server. Any other id could not be stored for resuming.
fn is_session(text: &str) -> bool {
    (1..=UPSTREAM_SESSION_BYTES_MAX).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests;
