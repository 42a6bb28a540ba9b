//! `docs/settings.schema.json`: the JSON schema (draft 2020-12) of the settings file, for editors and checks.
//! It says what can be said about one value at a time; combinations are the program's own business.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};
use serde_json::Value;

use super::super::servers::{SERVERS_MAX, kinds_with};
use super::super::setting::{Row, Section, Setting};
use super::super::table::{SECTIONS, SERVER};

/// A part of the schema. The keys of an object keep their order whatever the features of the JSON library.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Node {
    Value(Value),
    #[serde(serialize_with = "in_order")]
    Object(Entries),
    Properties(BTreeMap<&'static str, Node>),
}

pub(super) type Entries = Vec<(&'static str, Node)>;

fn in_order<S: Serializer>(entries: &Entries, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(entries.iter().map(|(key, node)| (key, node)))
}

pub(super) fn json(value: impl Into<Value>) -> Node {
    Node::Value(value.into())
}

/// The text of `docs/settings.schema.json`.
pub fn json_schema() -> String {
    let mut root = vec![
        (
            "$schema",
            json("https://json-schema.org/draft/2020-12/schema"),
        ),
        ("title", json("Settings of mooring")),
        (
            "description",
            json("The settings file of `mooring serve`. Made by `mooring config schema`."),
        ),
    ];
    root.extend(settings_table(|_| true));
    text(root)
}

/// What a settings file may have, but for the settings whose keys `is_included` refuses.
pub(super) fn settings_table(is_included: impl Fn(&str) -> bool) -> Entries {
    let sections = SECTIONS.iter().map(|section| {
        let mut table = vec![("description", json(section.meaning))];
        table.extend(closed_table(properties(fields(section, &is_included))));
        (section.name, Node::Object(table))
    });
    let mut server = closed_table(properties(fields(&SERVER, |_| true)));
    server.insert(1, ("required", json(vec!["id"])));
    let servers = vec![
        ("description", json(SERVER.meaning)),
        ("type", json("array")),
        ("maxItems", json(SERVERS_MAX)),
        ("items", Node::Object(server)),
    ];
    let servers = (SERVER.name, Node::Object(servers));
    closed_table(sections.chain([servers]).collect())
}

/// The text of a schema.
pub(super) fn text(root: Entries) -> String {
    // A tree of texts, numbers and string keys always serializes.
    let mut text = serde_json::to_string_pretty(&Node::Object(root)).unwrap_or_default();
    text.push('\n');
    text
}

/// Every name of the included fields of a section, with what it may be.
fn fields(section: &Section, is_included: impl Fn(&str) -> bool) -> Entries {
    let settings = section.settings();
    settings
        .filter(|setting| is_included(setting.about().key))
        .flat_map(|setting| setting.about().names().map(|name| (name, value(setting))))
        .collect()
}

/// A table that has these properties and no others.
pub(super) fn closed_table(properties: BTreeMap<&'static str, Node>) -> Entries {
    vec![
        ("type", json("object")),
        ("properties", Node::Properties(properties)),
        ("additionalProperties", json(false)),
    ]
}

/// Each field where its name says, whose dots lead into tables.
pub(super) fn properties(fields: Entries) -> BTreeMap<&'static str, Node> {
    let mut properties = BTreeMap::new();
    let mut tables: BTreeMap<&'static str, Entries> = BTreeMap::new();
    for (name, node) in fields {
        match name.split_once('.') {
            None => {
                properties.insert(name, node);
            }
            Some((table, rest)) => tables.entry(table).or_default().push((rest, node)),
        }
    }
    let tables = tables.into_iter();
    properties.extend(
        tables.map(|(name, fields)| (name, Node::Object(closed_table(self::properties(fields))))),
    );
    properties
}

fn value(setting: &Setting) -> Node {
    let (kind, default, limits) = match setting {
        Setting::Integer(integer) => (
            "integer",
            json(integer.default),
            vec![
                ("minimum", json(*integer.range.start())),
                ("maximum", json(*integer.range.end())),
            ],
        ),
        Setting::Switch(switch) => ("boolean", json(switch.default), Vec::new()),
        Setting::Text(text) => (
            "string",
            json(text.default),
            vec![("maxLength", json(text.bytes_max))],
        ),
        Setting::List(list) => {
            let item = vec![
                ("type", json("string")),
                ("maxLength", json(list.item_bytes_max)),
            ];
            let limits = vec![
                ("maxItems", json(list.items_max)),
                ("items", Node::Object(item)),
            ];
            ("array", json(()), limits)
        }
        Setting::Map(map) => {
            let value = Node::Object(vec![("type", json("string"))]);
            let limits = vec![
                ("maxProperties", json(map.entries_max)),
                ("additionalProperties", value),
            ];
            ("object", json(()), limits)
        }
        Setting::Tables(tables) => {
            let rows = tables.rows().map(|row| (row.about().name(), value(row)));
            let table = closed_table(rows.collect());
            let limits = vec![
                ("maxItems", json(tables.tables_max)),
                ("items", Node::Object(table)),
            ];
            ("array", json(()), limits)
        }
        Setting::Choice(choice) => {
            let words: Vec<&str> = (choice.words)().into_iter().map(|(word, _)| word).collect();
            (
                "string",
                json(words.first().copied()),
                vec![("enum", json(words))],
            )
        }
    };
    let mut entries = vec![
        ("description", json(description(setting))),
        ("type", json(kind)),
    ];
    entries.extend(setting.default_text().map(|_| ("default", default)));
    entries.extend(limits);
    Node::Object(entries)
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
