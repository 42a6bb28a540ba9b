//! Replaces parts of a text and preserves everything else byte for byte.
//!
//! Invariant: the output is the input with exactly the given spans replaced. It is built in a single allocation of the
//! exact size, so that turning it into shared bytes needs no copy.

use std::borrow::Cow;
use std::ops::Range;

use super::ids::RewrittenId;

/// The replacement of a span.
#[derive(Debug)]
pub(super) enum Fill<'a> {
    /// Finished JSON text.
    Text(Cow<'a, str>),
    /// An id in rewritten form, written directly into the output.
    Wrapped(RewrittenId<'a>),
}

impl Fill<'_> {
    fn len(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Wrapped(wrapped) => wrapped.len(),
        }
    }

    fn write(&self, out: &mut String) {
        match self {
            Self::Text(text) => out.push_str(text),
            Self::Wrapped(wrapped) => wrapped.write(out),
        }
    }
}

/// A replacement in a text.
#[derive(Debug)]
pub(super) struct Edit<'a> {
    /// The span to replace; an empty span inserts.
    pub(super) at: Range<usize>,
    /// The replacement.
    pub(super) with: Fill<'a>,
}

/// The span of `part` in `whole`, if it is a slice of it.
pub(super) fn span_of(whole: &str, part: &str) -> Option<Range<usize>> {
    let start = (part.as_ptr() as usize).checked_sub(whole.as_ptr() as usize)?;
    let end = start.checked_add(part.len())?;
    (end <= whole.len()).then_some(start..end)
}

/// Applies the edits, in any order. They must not overlap.
///
/// Returns `None` if a span is outside the text, off a character boundary or inside another one. That is a defect of
/// the caller and costs only the message, not the process.
pub(super) fn splice(text: &str, edits: &mut [Edit<'_>]) -> Option<String> {
    edits.sort_unstable_by_key(|edit| edit.at.start);
    let removed: usize = edits.iter().map(|edit| edit.at.len()).sum();
    let added: usize = edits.iter().map(|edit| edit.with.len()).sum();
    let mut out = String::with_capacity(text.len().checked_sub(removed)? + added);
    let mut copied = 0;
    for edit in edits.iter() {
        out.push_str(text.get(copied..edit.at.start)?);
        edit.with.write(&mut out);
        copied = edit.at.end;
    }
    out.push_str(text.get(copied..)?);
    Some(out)
}

/// The edit that replaces `part` of the text.
pub(super) fn replace_part(text: &str, part: &str, with: String) -> Option<Edit<'static>> {
    let at = span_of(text, part)?;
    let with = Fill::Text(Cow::Owned(with));
    Some(Edit { at, with })
}

/// The edit that inserts a member as the first of an object, a part of the text.
pub(super) fn first_member(text: &str, object: &str, member: &str) -> Option<Edit<'static>> {
    let at = span_of(text, object)?.start + 1;
    let rest = object.get(1..)?.trim_start_matches([' ', '\t', '\n', '\r']);
    let comma = if rest.starts_with('}') { "" } else { "," };
    let with = Fill::Text(Cow::Owned(format!("{member}{comma}")));
    Some(Edit { at: at..at, with })
}

/// The edit that appends an element to an array, a part of the text.
pub(super) fn append_element(text: &str, array: &str, element: &str) -> Option<Edit<'static>> {
    let inner = array.strip_prefix('[')?.strip_suffix(']')?;
    let at = span_of(text, inner)?.end;
    let comma = if inner.trim().is_empty() { "" } else { "," };
    let with = Fill::Text(Cow::Owned(format!("{comma}{element}")));
    Some(Edit { at: at..at, with })
}

/// A text as a JSON string.
pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]
    use super::*;

    fn edit(at: Range<usize>, with: &str) -> Edit<'_> {
        Edit {
            at,
            with: Fill::Text(Cow::Borrowed(with)),
        }
    }

    #[test]
    fn edits_in_any_order_preserve_the_rest() {
        let mut edits = [edit(4..5, "FIVE"), edit(0..1, ""), edit(2..2, "+")];
        let out = splice("abcdef", &mut edits).unwrap();
        assert_eq!(out, "b+cdFIVEf");
        assert_eq!(out.capacity(), out.len());
    }

    #[test]
    fn invalid_spans_are_refused() {
        assert_eq!(splice("abc", &mut [edit(2..9, "x")]), None);
        assert_eq!(splice("abc", &mut [edit(0..2, "x"), edit(1..3, "y")]), None);
        assert_eq!(splice("é", &mut [edit(1..1, "x")]), None);
    }

    #[test]
    fn only_slices_have_a_span() {
        let whole = String::from("{\"id\":7}");
        assert_eq!(span_of(&whole, &whole[6..7]), Some(6..7));
        let (left, right) = whole.split_at(4);
        assert_eq!(span_of(left, right), None);
    }
}
