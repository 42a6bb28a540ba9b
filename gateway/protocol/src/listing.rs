//! The lists of MCP (tools, prompts, resources, resource templates): one page of an answer, entry by entry.
//!
//! Invariant: an entry is preserved byte for byte, whatever fields it has; renaming changes only the text of its name.

use std::borrow::Cow;
use std::ops::Range;

use serde_json::value::RawValue;
use thiserror::Error;

use super::envelope::{Kind, Message};
use super::ids::decode;
use super::keys::Members;
use super::method::Method;
use super::splice::{Edit, Fill, quoted, span_of, splice};

/// The kind of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Listing {
    /// `tools/list`
    Tools,
    /// `prompts/list`
    Prompts,
    /// `resources/list`
    Resources,
    /// `resources/templates/list`
    Templates,
}

/// Why an answer is not a page of a list.
#[derive(Debug, Error)]
pub enum PageError {
    /// It is not a JSON object, or its list is not an array.
    #[error("the page is not a list")]
    Json(#[from] serde_json::Error),
    /// A relevant key is duplicated.
    #[error("the key `{0}` occurs more than once")]
    DuplicateKey(&'static str),
    /// It has no list.
    #[error("the page has no `{0}`")]
    NoList(&'static str),
    /// The list was not found in the text of its message: a defect.
    #[error("the list is no part of its message")]
    Span,
    /// The cursor is not a string.
    #[error("`nextCursor` is not a string")]
    Cursor,
}

/// One page of a list.
#[derive(Debug)]
pub struct Page {
    /// Its entries, in order.
    pub entries: Vec<Entry>,
    /// The number of entries that were dropped because they have no name, or two.
    pub nameless: usize,
    /// The cursor of the next page; `None` on the last one.
    pub next_cursor: Option<Box<str>>,
}

/// An entry of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its identifier: the name of a tool or prompt, the URI of a resource, the URI template of a template.
    pub name: Box<str>,
    text: Box<str>,
    name_at: Range<usize>,
}

impl Listing {
    /// The list that a method returns.
    #[must_use]
    pub const fn of(method: Method) -> Option<Self> {
        match method {
            Method::ToolsList => Some(Self::Tools),
            Method::PromptsList => Some(Self::Prompts),
            Method::ResourcesList => Some(Self::Resources),
            Method::ResourceTemplatesList => Some(Self::Templates),
            _ => None,
        }
    }

    /// The method that returns it.
    #[must_use]
    pub fn method(self) -> &'static str {
        match self {
            Self::Tools => Method::ToolsList,
            Self::Prompts => Method::PromptsList,
            Self::Resources => Method::ResourcesList,
            Self::Templates => Method::ResourceTemplatesList,
        }
        .label()
    }

    /// The key of the list in the result.
    #[must_use]
    pub const fn key(self) -> &'static str {
        let [key, _] = *self.page_keys();
        key
    }

    const fn page_keys(self) -> &'static [&'static str; 2] {
        match self {
            Self::Tools => &["tools", "nextCursor"],
            Self::Prompts => &["prompts", "nextCursor"],
            Self::Resources => &["resources", "nextCursor"],
            Self::Templates => &["resourceTemplates", "nextCursor"],
        }
    }

    const fn name_keys(self) -> &'static [&'static str; 1] {
        match self {
            Self::Tools | Self::Prompts => &["name"],
            Self::Resources => &["uri"],
            Self::Templates => &["uriTemplate"],
        }
    }
}

impl Page {
    /// Parses the JSON text of a result.
    ///
    /// # Errors
    /// [`PageError`]. An entry without a name is no error; it is dropped and counted.
    pub fn read(listing: Listing, result: &str) -> Result<Self, PageError> {
        let (list, cursor) = parts(listing, result)?;
        Self::of(listing, list, cursor)
    }

    /// The page of this list and this cursor, both as JSON text.
    fn of(listing: Listing, list: &str, cursor: Option<&str>) -> Result<Self, PageError> {
        let list: Vec<&RawValue> = serde_json::from_str(list)?;
        let entries: Vec<Entry> = list
            .iter()
            .filter_map(|value| Entry::read(listing, value.get()))
            .collect();
        Ok(Self {
            nameless: list.len().saturating_sub(entries.len()),
            next_cursor: next_cursor(cursor)?,
            entries,
        })
    }
}

/// The message with only those entries of its list that `keep` accepts by their names; `None` if it has no such list. Every
/// other byte of the message stays.
///
/// # Errors
/// [`PageError`], if its list cannot be read.
pub fn retain(
    listing: Listing,
    message: &Message<'_>,
    keep: impl Fn(&str) -> bool,
) -> Result<Option<String>, PageError> {
    let Some(result) = message.outcome().filter(|_| message.kind() == Kind::Result) else {
        return Ok(None);
    };
    let (list, cursor) = match parts(listing, result) {
        Ok(parts) => parts,
        Err(PageError::NoList(_)) => return Ok(None),
        Err(cause) => return Err(cause),
    };
    let page = Page::of(listing, list, cursor)?;
    let kept: Vec<&str> = (page.entries.iter())
        .filter(|entry| keep(&entry.name))
        .map(Entry::text)
        .collect();
    let with = Fill::Text(Cow::Owned(format!("[{}]", kept.join(","))));
    let at = span_of(message.text(), list).ok_or(PageError::Span)?;
    let text = splice(message.text(), &mut [Edit { at, with }]);
    text.map(Some).ok_or(PageError::Span)
}

/// The list and the cursor of a result, as JSON text.
fn parts(listing: Listing, result: &str) -> Result<(&str, Option<&str>), PageError> {
    let found = Members::read(listing.page_keys(), result)?;
    if let Some(key) = found.duplicate {
        return Err(PageError::DuplicateKey(key));
    }
    let [list, cursor] = found.values;
    Ok((list.ok_or(PageError::NoList(listing.key()))?, cursor))
}

/// An empty cursor counts as none: some servers end their lists with it.
fn next_cursor(raw: Option<&str>) -> Result<Option<Box<str>>, PageError> {
    match raw {
        None | Some("null") => Ok(None),
        Some(raw) => {
            let cursor = decode(raw).ok_or(PageError::Cursor)?;
            Ok((!cursor.is_empty()).then(|| cursor.into()))
        }
    }
}

impl Entry {
    fn read(listing: Listing, text: &str) -> Option<Self> {
        let found = Members::read(listing.name_keys(), text).ok()?;
        let [raw] = found.values;
        let raw = raw.filter(|_| found.duplicate.is_none())?;
        Some(Self {
            name: decode(raw)?.into(),
            name_at: span_of(text, raw)?,
            text: text.into(),
        })
    }

    /// The JSON text as the server wrote it.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The JSON text with another name. Never `None` in practice, because the name was found in this text.
    #[must_use]
    pub fn renamed(&self, name: &str) -> Option<String> {
        let with = Fill::Text(Cow::Owned(quoted(name)));
        let at = self.name_at.clone();
        splice(&self.text, &mut [Edit { at, with }])
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]
    use super::*;
    use crate::envelope::Sender;

    #[test]
    fn an_entry_keeps_every_byte_but_its_name() {
        let text = r#"{"tools":[ {"x" : 1.0e0, "name" : "a\u0062", "é":"\ud83d\ude00",
            "inputSchema":{"name":"inner"} } ]}"#;
        let page = Page::read(Listing::Tools, text).unwrap();
        let entry = &page.entries[0];
        assert_eq!(&*entry.name, "ab");
        assert!(text.contains(entry.text()));
        let renamed = entry.renamed("s__ab\"\\").unwrap();
        let expected = entry
            .text()
            .replace(r#""name" : "a\u0062""#, r#""name" : "s__ab\"\\""#);
        assert_eq!(renamed, expected);
        serde_json::from_str::<serde_json::Value>(&renamed).unwrap();
    }

    #[test]
    fn entries_without_a_name_or_with_two_are_left_out_and_counted() {
        let text = r#"{"tools":[{"name":"a"},{"name":1},{},7,null,{"name":"a","n\u0061me":"b"},{"name":"b"}]}"#;
        let page = Page::read(Listing::Tools, text).unwrap();
        let names: Vec<_> = page.entries.iter().map(|entry| &*entry.name).collect();
        assert_eq!((names, page.nameless), (vec!["a", "b"], 5));
    }

    #[test]
    fn what_is_not_retained_is_gone_and_the_rest_keeps_every_byte() {
        let retained = |text: &str| {
            let message = Message::parse(text.as_bytes(), Sender::Upstream).unwrap();
            retain(Listing::Tools, &message, |name| name != "b").map_err(|error| error.to_string())
        };
        let text = r#"{"jsonrpc":"2.0","id" : 1,"result":{"x":1.0e0,"tools" : [ {"name":"a" , "y":2}, {"name":"b"},{"name":"\u0062"}, {}],"nextCursor":"n"}}"#;
        let expected = r#"{"jsonrpc":"2.0","id" : 1,"result":{"x":1.0e0,"tools" : [{"name":"a" , "y":2}],"nextCursor":"n"}}"#;
        assert_eq!(retained(text), Ok(Some(expected.to_owned())));
        for other in [
            r#"{"jsonrpc":"2.0","id":1,"result":{"content":[]}}"#,
            r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"tools"}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#,
        ] {
            assert_eq!(retained(other), Ok(None), "{other}");
        }
        for unreadable in [
            r#"{"tools":{"name":"b"}}"#,
            r#"{"tools":[],"tools":[{"name":"b"}]}"#,
            r#"{"tools":[],"t\u006fols":[{"name":"b"}]}"#,
        ] {
            let text = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{unreadable}}}"#);
            assert!(retained(&text).is_err(), "{unreadable}");
        }
    }

    #[test]
    fn every_list_has_names_of_its_own_kind() {
        for (listing, text, name) in [
            (Listing::Prompts, r#"{"prompts":[{"name":"p"}]}"#, "p"),
            (
                Listing::Resources,
                r#"{"resources":[{"name":"n","uri":"u:1"}]}"#,
                "u:1",
            ),
            (
                Listing::Templates,
                r#"{"resourceTemplates":[{"uriTemplate":"u:{x}","name":"n"}]}"#,
                "u:{x}",
            ),
        ] {
            let page = Page::read(listing, text).unwrap();
            assert_eq!(&*page.entries[0].name, name);
            assert_eq!(
                Listing::of(Method::named(listing.method())),
                Some(listing),
                "the method leads back"
            );
        }
    }

    #[test]
    fn cursors_are_strings_and_an_empty_one_is_none() {
        let cursor = |raw: &str| {
            let text = format!(r#"{{"tools":[],"nextCursor":{raw}}}"#);
            Page::read(Listing::Tools, &text).map(|page| page.next_cursor)
        };
        assert_eq!(cursor(r#""a\"b""#).unwrap().as_deref(), Some("a\"b"));
        assert_eq!(cursor("null").unwrap(), None);
        assert_eq!(cursor(r#""""#).unwrap(), None);
        assert!(matches!(cursor("7"), Err(PageError::Cursor)));
    }

    #[test]
    fn invalid_pages_are_refused() {
        let read = |text| Page::read(Listing::Tools, text).map(|_| ());
        assert!(matches!(read("{}"), Err(PageError::NoList("tools"))));
        assert!(matches!(read("[]"), Err(PageError::NoList("tools"))));
        assert!(matches!(read(r#"{"tools":{}}"#), Err(PageError::Json(_))));
        assert!(matches!(
            read(r#"{"tools":[],"tools":[]}"#),
            Err(PageError::DuplicateKey("tools"))
        ));
    }
}
