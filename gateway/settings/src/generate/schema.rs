//! `docs/settings.schema.json`: the JSON schema (draft 2020-12) of the settings file, for editors and checks.
//! It says what can be said about one value at a time; combinations are the program's own business.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::super::servers::{SERVERS_MAX, kinds_with};
use super::super::setting::{List, Row, Section, Setting};
use super::super::table::{SECTIONS, SERVER};

/// One schema object. A struct keeps the order of its keys whatever the features of the JSON library.
#[derive(Serialize, Default)]
struct Node {
    #[serde(rename = "$schema", skip_serializing_if = "Option::is_none")]
    schema: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<&'static str>,
    #[serde(skip_serializing_if = "String::is_empty")]
    description: String,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    default: Option<Value>,
    #[serde(rename = "enum", skip_serializing_if = "Vec::is_empty")]
    words: Vec<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    minimum: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    maximum: Option<u64>,
    #[serde(rename = "maxLength", skip_serializing_if = "Option::is_none")]
    length_max: Option<usize>,
    #[serde(rename = "maxItems", skip_serializing_if = "Option::is_none")]
    items_max: Option<usize>,
    #[serde(rename = "maxProperties", skip_serializing_if = "Option::is_none")]
    properties_max: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    items: Option<Box<Node>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    required: Vec<&'static str>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    properties: BTreeMap<&'static str, Node>,
    #[serde(
        rename = "additionalProperties",
        skip_serializing_if = "Option::is_none"
    )]
    others: Option<AdditionalProperties>,
}

/// What properties beyond the named ones may be.
#[derive(Serialize)]
#[serde(untagged)]
enum AdditionalProperties {
    Allowed(bool),
    Shaped(Box<Node>),
}

/// The text of `docs/settings.schema.json`.
pub fn json_schema() -> String {
    let mut properties: BTreeMap<&'static str, Node> = SECTIONS
        .iter()
        .map(|section| (section.name, table(section)))
        .collect();
    let mut server = table(&SERVER);
    server.required = vec!["id"];
    properties.insert(
        SERVER.name,
        Node {
            description: SERVER.meaning.to_owned(),
            kind: Some("array"),
            items_max: Some(SERVERS_MAX),
            items: Some(Box::new(Node {
                description: String::new(),
                ..server
            })),
            ..Node::default()
        },
    );
    let root = Node {
        schema: Some("https://json-schema.org/draft/2020-12/schema"),
        title: Some("Settings of mooring"),
        description: "The settings file of `mooring serve`. Made by `mooring config schema`."
            .to_owned(),
        kind: Some("object"),
        properties,
        others: Some(AdditionalProperties::Allowed(false)),
        ..Node::default()
    };
    // A tree of texts, numbers and string keys always serialises.
    let mut text = serde_json::to_string_pretty(&root).unwrap_or_default();
    text.push('\n');
    text
}

fn table(section: &Section) -> Node {
    let mut table = Node {
        description: section.meaning.to_owned(),
        ..closed_table()
    };
    for setting in section.settings() {
        let about = setting.about();
        put(&mut table, about.name(), value(setting));
        for alias in about.aliases {
            put(&mut table, alias, value(setting));
        }
    }
    table
}

/// A table that has the properties it names and no others.
fn closed_table() -> Node {
    Node {
        kind: Some("object"),
        others: Some(AdditionalProperties::Allowed(false)),
        ..Node::default()
    }
}

/// Puts a property where its name says, whose dots lead into tables.
fn put(table: &mut Node, name: &'static str, property: Node) {
    match name.split_once('.') {
        None => {
            table.properties.insert(name, property);
        }
        Some((first, rest)) => {
            let inner = table.properties.entry(first).or_insert_with(closed_table);
            put(inner, rest, property);
        }
    }
}

fn value(setting: &Setting) -> Node {
    let described = Node {
        description: description(setting),
        ..Node::default()
    };
    let default = setting.default_text();
    match setting {
        Setting::Integer(integer) => Node {
            kind: Some("integer"),
            default: default.is_some().then(|| integer.default.into()),
            minimum: Some(*integer.range.start()),
            maximum: Some(*integer.range.end()),
            ..described
        },
        Setting::Switch(switch) => Node {
            kind: Some("boolean"),
            default: default.is_some().then(|| switch.default.into()),
            ..described
        },
        Setting::Text(text) => Node {
            kind: Some("string"),
            default: default.map(Value::from),
            length_max: Some(text.bytes_max),
            ..described
        },
        Setting::List(list) => Node {
            kind: Some("array"),
            items_max: Some(list.items_max),
            items: Some(Box::new(item(list))),
            ..described
        },
        Setting::Map(map) => Node {
            kind: Some("object"),
            properties_max: Some(map.entries_max),
            others: Some(AdditionalProperties::Shaped(Box::new(Node {
                kind: Some("string"),
                ..Node::default()
            }))),
            ..described
        },
        Setting::Choice(choice) => {
            let words: Vec<&'static str> =
                (choice.words)().into_iter().map(|(word, _)| word).collect();
            Node {
                kind: Some("string"),
                default: default.map(Value::from),
                words,
                ..described
            }
        }
    }
}

fn item(list: &List) -> Node {
    Node {
        kind: Some("string"),
        length_max: Some(list.item_bytes_max),
        ..Node::default()
    }
}

fn description(setting: &Setting) -> String {
    let about = setting.about();
    let allowed = match setting {
        // Said by the schema itself.
        Setting::Switch(_) | Setting::Choice(_) => String::new(),
        Setting::Integer(integer) => format!(" Unit: {}.", integer.unit),
        _ => format!(" Allowed: {}.", setting.allowed()),
    };
    let kinds = match kinds_with(about).join(", ") {
        every if every.is_empty() => every,
        kinds => format!(" Kinds: {kinds}."),
    };
    let unset = about
        .unset
        .map_or(String::new(), |unset| format!(" Unset: {unset}."));
    format!("{}{allowed}{unset}{kinds}", about.meaning)
}
