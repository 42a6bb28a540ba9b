//! What a stub says of its tool, in words.

use serde_json::Value;

use super::kind::Field;
use super::limits;
use super::text;
use super::tool::MountedTool;

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

/// What its server says of its effects.
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
