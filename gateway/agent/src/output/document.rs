//! Output that is a single JSON document, possibly with warnings before and after it.

use super::json_value::JsonValue;

/// Longest output that is parsed as one document, in bytes. Runs are limited to less; nothing is extracted from a
/// longer one.
pub(super) const DOCUMENT_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Most lines at which the document is assumed to begin: a warning may begin with a bracket too.
const BEGINNINGS_MAX: usize = 32;

/// The output so far.
#[derive(Debug, Default)]
pub(super) struct Document {
    bytes: Vec<u8>,
    is_too_long: bool,
}

impl Document {
    /// Appends a line.
    pub(super) fn push(&mut self, line: &[u8]) {
        let length = self.bytes.len().saturating_add(line.len());
        if self.is_too_long || length >= DOCUMENT_BYTES_MAX {
            self.is_too_long = true;
            self.bytes = Vec::new();
            return;
        }
        self.bytes.extend_from_slice(line);
        self.bytes.push(b'\n');
    }

    /// Whether the limit was exceeded.
    pub(super) fn is_too_long(&self) -> bool {
        self.is_too_long
    }

    /// Applies `look` to the document, if there is one: the first object or array that fills its lines.
    pub(super) fn look<T>(&self, look: impl FnOnce(JsonValue<'_>) -> T) -> Option<T> {
        let text = String::from_utf8_lossy(&self.bytes);
        let beginnings = text
            .match_indices('\n')
            .map(|(newline, _)| newline.saturating_add(1));
        std::iter::once(0)
            .chain(beginnings)
            .filter_map(|at| text.get(at..))
            .filter(|rest| rest.trim_ascii_start().starts_with(['{', '[']))
            .take(BEGINNINGS_MAX)
            .find_map(filling)
            .map(look)
    }
}

/// The value at the start of a text, if its last line contains nothing else.
fn filling(text: &str) -> Option<JsonValue<'_>> {
    let (value, rest) = JsonValue::first(text)?;
    let line = rest.lines().next().unwrap_or_default();
    line.trim_ascii().is_empty().then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(output: &str, expected: Option<&str>) {
        let mut document = Document::default();
        for line in output.split('\n') {
            document.push(line.as_bytes());
        }
        let found = document.look(|value| value.text().map(String::from));
        assert_eq!(found.flatten().as_deref(), expected, "{output:?}");
    }

    #[test]
    fn it_stands_alone_or_between_warnings() {
        check("{\"a\":1}", Some("{\"a\":1}"));
        check("\n  {\n\"a\":1\n}\n", Some("{\n\"a\":1\n}"));
        check("Loaded.\n{\"a\":1}\nbye {\n", Some("{\"a\":1}"));
        check(
            "[info] ready\n[1] started\n{\"a\":1} \r\n",
            Some("{\"a\":1}"),
        );
        check("[1] started\n[\n2]", Some("[\n2]"));
    }

    #[test]
    fn what_is_no_document_is_none() {
        for output in ["", "text", "{\"a\":1", "\"text\"", "1", "{} {}"] {
            check(output, None);
        }
    }
}
