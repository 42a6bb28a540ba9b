//! The text that describes a tool in its stub.

use serde_json::Value;

use super::kind::Field;
use super::limits;
use super::names::{self, Role};
use super::text;
use super::tool::MountedTool;
use super::typescript_types;

/// The title, the description, what the tool does to things, and its parameters.
pub(super) fn tool<'a>(
    tool: &MountedTool,
    parameters: impl Iterator<Item = (&'a str, &'a Field)>,
) -> String {
    let mut parts = vec![text::paragraph(
        &tool.description,
        limits::DESCRIPTION_CHARS_MAX,
    )];
    let title = text::line(
        tool.title.as_deref().unwrap_or_default(),
        limits::SUMMARY_CHARS_MAX,
    );
    let is_said = parts.iter().any(|part| part.starts_with(&title));
    if !title.is_empty() && !is_said {
        parts.insert(0, title);
    }
    parts.extend(effects(tool).map(str::to_owned));
    let parameters: Vec<String> = parameters
        .filter_map(|(name, field)| parameter(name, field))
        .collect();
    parts.push(parameters.join("\n"));
    parts.retain(|part| !part.is_empty());
    parts.join("\n\n")
}

/// The tool in one line.
pub(super) fn summary(tool: &MountedTool) -> String {
    let words = match &tool.title {
        Some(title) if tool.description.trim().is_empty() => title,
        _ => &tool.description,
    };
    let first = text::paragraph(words, limits::DESCRIPTION_CHARS_MAX);
    text::line(
        first.lines().next().unwrap_or_default(),
        limits::SUMMARY_CHARS_MAX,
    )
}

/// How the function of a tool is called, and the fields of its result where its server says them.
pub(super) fn python_call(tool: &MountedTool, function: &str) -> String {
    let parameters = fields(&tool.input_schema);
    let identifiers = names::identifiers(parameters.iter().map(|(name, _)| *name), Role::Parameter);
    let written = |(name, is_required): &(&str, bool)| {
        let name = identifiers.get(name).map_or("", String::as_str);
        let default = if *is_required { "" } else { "..." };
        format!("{name}={default}")
    };
    let result = result(tool, text::python_string);
    format!(
        "{function}({}){}",
        listed(&parameters, written),
        arrow(" -> ", &result)
    )
}

/// Likewise in TypeScript.
pub(super) fn typescript_call(tool: &MountedTool, function: &str) -> String {
    let parameters = fields(&tool.input_schema);
    let written = |(name, is_required): &(&str, bool)| {
        let mark = if *is_required { "" } else { "?" };
        format!("{}{mark}", typescript_types::key(name))
    };
    let listed = listed(&parameters, written);
    let given = if listed.is_empty() {
        listed
    } else {
        format!("{{{listed}}}")
    };
    let result = result(tool, typescript_types::key);
    format!("await {function}({given}){}", arrow(" => ", &result))
}

fn arrow(arrow: &str, result: &str) -> String {
    if result.is_empty() {
        String::new()
    } else {
        format!("{arrow}{{{result}}}")
    }
}

fn result(tool: &MountedTool, written: impl Fn(&str) -> String) -> String {
    let fields = tool.output_schema.as_ref().map(fields).unwrap_or_default();
    listed(&fields, |(name, _)| written(name))
}

/// The names of the properties of an object's schema.
pub(super) fn property_names(schema: &Value) -> impl Iterator<Item = &str> {
    let properties = schema.get("properties").and_then(Value::as_object);
    properties
        .into_iter()
        .flat_map(|properties| properties.keys().map(String::as_str))
        .take(limits::FIELDS_MAX)
}

/// The fields of an object's schema, and which of them it requires; these first.
fn fields(schema: &Value) -> Vec<(&str, bool)> {
    let required = schema.get("required").and_then(Value::as_array);
    let is_required =
        |name: &str| required.is_some_and(|names| names.iter().any(|known| known == name));
    let mut fields: Vec<(&str, bool)> = property_names(schema)
        .filter(|name| name.len() <= limits::FIELD_NAME_CHARS_MAX)
        .map(|name| (name, is_required(name)))
        .collect();
    fields.sort_by_key(|(_, is_required)| !is_required);
    fields
}

fn listed<T>(fields: &[T], written: impl Fn(&T) -> String) -> String {
    let mut listed: Vec<String> = fields
        .iter()
        .take(limits::SUMMARY_FIELDS_MAX)
        .map(written)
        .collect();
    if fields.len() > listed.len() {
        listed.push("...".to_owned());
    }
    listed.join(", ")
}

/// The effects of the tool according to its server.
fn effects(tool: &MountedTool) -> Option<&'static str> {
    let hints = tool.annotations.as_ref()?;
    let hint = |name| hints.get(name).and_then(Value::as_bool);
    if hint("readOnlyHint") == Some(true) {
        return Some("It changes nothing.");
    }
    (hint("destructiveHint") == Some(true)).then_some("It may destroy something.")
}

fn parameter(name: &str, field: &Field) -> Option<String> {
    let words = text::line(&field.description, limits::FIELD_DESCRIPTION_CHARS_MAX);
    let original = text::line(&field.name, limits::FIELD_NAME_CHARS_MAX);
    match (name == field.name, words.is_empty()) {
        (true, true) => None,
        (true, false) => Some(format!("{name}: {words}")),
        (false, true) => Some(format!("{name}: {original:?} to the tool.")),
        (false, false) => Some(format!("{name}: {original:?} to the tool. {words}")),
    }
}
