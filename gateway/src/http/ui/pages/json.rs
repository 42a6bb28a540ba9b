//! Reads the JSON that the functions of the REST interface answer with. What is absent is empty.

use maud::Markup;
use serde_json::Value;

use crate::http::ui::html as page_html;

/// The text of a field; other values as JSON.
pub(super) fn text(of: &Value, field: &str) -> String {
    match of.get(field) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

/// The items of a list.
pub(super) fn items<'a>(of: &'a Value, field: &str) -> &'a [Value] {
    of.get(field)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// Whether a field is true.
pub(super) fn is_true(of: &Value, field: &str) -> bool {
    of.get(field).and_then(Value::as_bool).unwrap_or_default()
}

/// A moment of RFC 3339, short to read.
pub(super) fn moment(of: &Value, field: &str) -> Markup {
    page_html::moment(&text(of, field))
}

/// JSON with line breaks, as people read it.
pub(super) fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}
