//! `charts/mooring/values.yaml` and `values.schema.json`: the chart's own values, then the settings of the gateways below
//! `settings`, as in the settings file. Both follow from the same two tables, so that they cannot differ.

mod rows;

use std::fmt::Write as _;

use super::super::setting::{Row, Section, Setting};
use super::super::table::SECTIONS;
use super::schema::{Entries, Node, closed_table, json, properties, settings_table, text};
use super::wrapped;
use rows::{ChartValue, GROUPS, SET_BY_CHART, SETTINGS, Shape, VALUES};

const WIDTH: usize = 110;

const HEAD: &str = "\
# Values of the chart `mooring`. Made by `mooring config chart-values`; do not edit.
#
# The chart's own values come first, then, below `settings`, every setting of the gateways that the chart does not make
# itself, with its default. values.schema.json has the same for editors, and Helm refuses what it does not allow.
# docs/kubernetes.md explains both.
";

/// The text of `charts/mooring/values.yaml`.
pub fn chart_values() -> String {
    let mut text = HEAD.to_owned();
    let mut open = "";
    for value in VALUES {
        let (table, name) = value.place();
        if table != open {
            open = table;
            push_table(&mut text, table);
        } else if table.is_empty() {
            text.push('\n');
        }
        let indent = indent_of(table);
        push_comment(&mut text, indent, value.meaning);
        let _ = writeln!(text, "{indent}{name}: {}", value.default);
    }
    push_settings(&mut text);
    text
}

/// The text of `charts/mooring/values.schema.json`.
pub fn chart_schema() -> String {
    let mut fields: Entries = VALUES
        .iter()
        .map(|value| (value.path, node(value)))
        .collect();
    let mut settings = vec![("description", json(SETTINGS))];
    settings.extend(settings_table(|key| !is_set_by_chart(key)));
    fields.push(("settings", Node::Object(settings)));
    // Helm gives every chart of a chart this one.
    fields.push(("global", object("Values that charts share. Unused here.")));
    let mut root = vec![
        ("$schema", json("http://json-schema.org/draft-07/schema#")),
        ("title", json("Values of the chart mooring")),
        (
            "description",
            json("Made by `mooring config chart-schema`."),
        ),
    ];
    root.extend(closed_table(properties(fields)));
    text(root)
}

fn is_set_by_chart(key: &str) -> bool {
    SET_BY_CHART.contains(&key)
}

fn object(meaning: &str) -> Node {
    Node::Object(vec![
        ("description", json(meaning)),
        ("type", json("object")),
    ])
}

fn node(value: &ChartValue) -> Node {
    let items = |kind: &str| Node::Object(vec![("type", json(kind))]);
    let mut entries = vec![("description", json(value.meaning))];
    match value.shape {
        Shape::Text => entries.push(("type", json("string"))),
        Shape::Word(words) => entries.push(("enum", json(words.to_vec()))),
        Shape::Switch => entries.push(("type", json("boolean"))),
        Shape::Integer(least, most) => entries.extend([
            ("type", json("integer")),
            ("minimum", json(least)),
            ("maximum", json(most)),
        ]),
        Shape::Object => entries.push(("type", json("object"))),
        Shape::TextMap => entries.extend([
            ("type", json("object")),
            ("additionalProperties", items("string")),
        ]),
        Shape::Texts => entries.extend([("type", json("array")), ("items", items("string"))]),
        Shape::Objects => entries.extend([("type", json("array")), ("items", items("object"))]),
    }
    Node::Object(entries)
}

fn indent_of(table: &str) -> &'static str {
    match table.split('.').filter(|name| !name.is_empty()).count() {
        0 => "",
        1 => "  ",
        _ => "    ",
    }
}

/// The line of a table, with what it is about.
fn push_table(text: &mut String, table: &str) {
    let (parent, name) = table.rsplit_once('.').unwrap_or(("", table));
    if parent.is_empty() {
        text.push('\n');
    }
    if table.is_empty() {
        return;
    }
    let meaning = GROUPS.iter().find(|(group, _)| *group == table);
    let indent = indent_of(parent);
    if let Some((_, meaning)) = meaning {
        push_comment(text, indent, meaning);
    }
    let _ = writeln!(text, "{indent}{name}:");
}

fn push_comment(text: &mut String, indent: &str, meaning: &str) {
    for line in wrapped(meaning, WIDTH) {
        let _ = writeln!(text, "{indent}# {line}");
    }
}

fn push_settings(text: &mut String) {
    text.push('\n');
    push_comment(text, "", SETTINGS);
    text.push_str("settings:\n");
    for section in SECTIONS {
        push_section(text, section);
    }
    text.push_str(
        "\n  # The MCP servers; docs/settings.md and values.schema.json have their fields. At least one.\n  \
         #   - id: tools\n  #     instances: [\"http://tools:9001/mcp\"]\n  servers: []\n",
    );
}

/// A section of settings. Only what the chart sets otherwise than the gateway is no comment.
fn push_section(text: &mut String, section: &Section) {
    let is_own = |setting: &&Setting| !is_set_by_chart(setting.about().key);
    let is_live = section
        .settings()
        .any(|setting| rows::default_of(setting.about().key).is_some());
    text.push('\n');
    push_comment(text, "  ", section.meaning);
    let mark = if is_live { "" } else { "#" };
    let _ = writeln!(text, "  {mark}{}:", section.name);
    for setting in section.settings().filter(is_own) {
        push_setting(text, setting);
    }
}

fn push_setting(text: &mut String, setting: &Setting) {
    let about = setting.about();
    let mut meaning = about.meaning.to_owned();
    let allowed = match setting {
        Setting::Integer(integer) => format!(
            "{} to {} {}",
            integer.range.start(),
            integer.range.end(),
            integer.unit
        ),
        _ => setting.allowed(),
    };
    let _ = write!(meaning, " Allowed: {allowed}.");
    if let Some(unset) = about.unset {
        let _ = write!(meaning, " Unset: {unset}.");
    }
    let live = rows::default_of(about.key);
    if let (Some((_, reason)), Some(default)) = (live, setting.default_text()) {
        let _ = write!(meaning, " {reason} The gateway's own default is {default}.");
    }
    push_comment(text, "    ", &meaning);
    match live {
        Some((value, _)) => {
            let _ = writeln!(text, "    {}: {value}", about.name());
        }
        None => {
            let default = setting.default_text().unwrap_or_default();
            let line = format!("    #{}: {default}", about.name());
            let _ = writeln!(text, "{}", line.trim_end());
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn what_the_chart_makes_itself_are_settings() {
        let keys: BTreeSet<&str> = SECTIONS
            .iter()
            .flat_map(Section::settings)
            .map(|setting| setting.about().key)
            .collect();
        for key in SET_BY_CHART {
            assert!(keys.contains(key), "{key}");
        }
        for (key, _, _) in rows::DEFAULTS {
            assert!(keys.contains(key), "{key}");
        }
    }

    #[test]
    fn every_default_has_the_shape_of_its_value() {
        for value in VALUES {
            let default: serde_json::Value = serde_json::from_str(value.default).unwrap();
            let fits = match value.shape {
                Shape::Text => default.is_string(),
                Shape::Word(words) => default.as_str().is_some_and(|word| words.contains(&word)),
                Shape::Switch => default.is_boolean(),
                Shape::Integer(least, most) => default
                    .as_u64()
                    .is_some_and(|number| (least..=most).contains(&number)),
                Shape::Object | Shape::TextMap => default.is_object(),
                Shape::Texts | Shape::Objects => default.is_array(),
            };
            assert!(fits, "{}: {}", value.path, value.default);
            assert!(value.meaning.ends_with('.'), "{}", value.path);
        }
    }
}
