//! The settings file: TOML text in, named values with their line numbers out. Only the grammar is checked
//! here and that every table has a known name; keys and types are the reader's business. Servers in JSON become the same.

use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::problem::SettingsError;
use super::value::{Entry, Table, Value};

/// A settings file is a page of text; what is larger is some other file.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// The whole file.
#[derive(Debug, Clone, Default)]
pub(super) struct FileTables {
    name: String,
    root: Table,
    path: Option<PathBuf>,
    counted: CountedParts,
    is_added: bool,
}

/// What places of a file are counted by.
#[derive(Debug, Clone, Copy, Default)]
enum CountedParts {
    #[default]
    Lines,
    /// JSON in a variable has one line.
    Servers,
}

impl FileTables {
    /// Reads and parses the file at `path`, which `written_as` names; what is wrong goes to `errors`.
    pub(super) fn read(path: &Path, written_as: &str, errors: &mut SettingsError) -> Self {
        let name = path.display().to_string();
        match read_text(path) {
            Ok(text) => Self {
                path: Some(path.to_owned()),
                ..Self::parse(name, &text, errors)
            },
            Err(reason) => {
                let allowed = "a readable TOML file of at most 1 MiB";
                errors.refuse(written_as, "", format!("{name:?}"), reason, allowed);
                Self::default()
            }
        }
    }

    /// Parses `text`, which people know as the file `name`.
    pub(super) fn parse(name: String, text: &str, errors: &mut SettingsError) -> Self {
        let lines = Lines(text);
        let (root, syntax_errors) = DeTable::parse_recoverable(text);
        for error in &syntax_errors {
            let line = error.span().map_or(1, |span| lines.number(span.start));
            let reason = error.message().trim().replace('\n', "; ");
            errors.refuse("bad TOML", format!("{name}, line {line}"), "", reason, "");
        }
        // Nothing of a file that does not parse is used: its parts would only cause misleading further errors.
        let root = if syntax_errors.is_empty() {
            lines.table(root.get_ref())
        } else {
            Table::new()
        };
        Self {
            name,
            root,
            ..Self::default()
        }
    }

    /// Reads a file of servers alone: `[[servers]]` tables, or the fields of one server.
    pub(super) fn read_servers(path: &Path, errors: &mut SettingsError) -> Self {
        let mut file = Self::read(path, SERVERS, errors);
        if file.root.is_empty() {
            return file;
        }
        if !file.root.contains_key(SERVERS) {
            let table = Value::Table(std::mem::take(&mut file.root));
            file.root = servers_root(vec![table]);
        }
        for (key, entry) in file.root.iter().filter(|(key, _)| *key != SERVERS) {
            let allowed = "[[servers]] tables alone, or the fields of one server";
            errors.refuse(
                key,
                file.place(entry.line),
                "",
                "it is in a file of servers",
                allowed,
            );
        }
        file
    }

    /// Parses a JSON list of servers, or one server, which people know as `name`.
    pub(super) fn parse_json(name: &str, text: &str, errors: &mut SettingsError) -> Self {
        let items = match serde_json::from_str(text) {
            Ok(serde_json::Value::Array(items)) => items,
            Ok(server @ serde_json::Value::Object(_)) => vec![server],
            Ok(_) => {
                errors.refuse(name, "", "", "it is no list", "a JSON list of servers");
                Vec::new()
            }
            Err(error) => {
                let reason = format!("it is not JSON: {error}");
                errors.refuse(name, "", "", reason, "a JSON list of servers");
                Vec::new()
            }
        };
        let servers = (1..).zip(items);
        let servers = servers.map(|(number, server)| json_value(server, number));
        let servers: Vec<Value> = servers.collect();
        Self {
            name: name.to_owned(),
            root: match servers.is_empty() {
                true => Table::new(),
                false => servers_root(servers),
            },
            path: None,
            counted: CountedParts::Servers,
            is_added: false,
        }
    }

    /// The same servers, as those that were added to the settings.
    pub(super) fn into_added(self) -> Self {
        Self {
            is_added: true,
            ..self
        }
    }

    /// Whether it has what was added to the settings.
    pub(super) const fn is_added(&self) -> bool {
        self.is_added
    }

    /// The directory that the file is in; none of what is no file.
    pub(super) fn directory(&self) -> Option<&Path> {
        self.path.as_deref()?.parent()
    }

    /// Where a line stands, for people.
    pub(super) fn place(&self, line: usize) -> String {
        match self.counted {
            CountedParts::Lines => format!("{}, line {line}", self.name),
            CountedParts::Servers => format!("{}, server {line}", self.name),
        }
    }

    /// The table `[name]`, if it is there and is a table.
    pub(super) fn section(&self, name: &str) -> Option<&Table> {
        match &self.root.get(name)?.value {
            Value::Table(table) => Some(table),
            _ => None,
        }
    }

    /// Everything that stands at the top.
    pub(super) fn root(&self) -> &Table {
        &self.root
    }
}

/// The key of the servers.
const SERVERS: &str = "servers";

/// A root that has these servers alone.
fn servers_root(servers: Vec<Value>) -> Table {
    let servers = Entry {
        value: Value::List(servers),
        line: 1,
    };
    Table::from([(SERVERS.to_owned(), servers)])
}

/// A value of JSON. Every part of a server has that server's number as its line; what is null is left out.
fn json_value(value: serde_json::Value, number: usize) -> Value {
    match value {
        serde_json::Value::String(text) => Value::Text(text),
        serde_json::Value::Bool(value) => Value::Switch(value),
        serde_json::Value::Number(digits) => match digits.as_i64() {
            Some(integer) => Value::Integer(integer),
            None => Value::Other(digits.to_string()),
        },
        serde_json::Value::Array(items) => {
            let items = items.into_iter().map(|item| json_value(item, number));
            Value::List(items.collect())
        }
        serde_json::Value::Object(fields) => {
            let fields = fields.into_iter().filter(|(_, value)| !value.is_null());
            let entry = |(key, value)| {
                let value = json_value(value, number);
                (
                    key,
                    Entry {
                        value,
                        line: number,
                    },
                )
            };
            Value::Table(fields.map(entry).collect())
        }
        serde_json::Value::Null => Value::Other("null".to_owned()),
    }
}

fn read_text(path: &Path) -> Result<String, String> {
    let metadata = std::fs::metadata(path).map_err(|error| format!("cannot open it: {error}"))?;
    if metadata.is_dir() {
        return Err("it is a directory".to_owned());
    }
    if metadata.len() > FILE_BYTES_MAX {
        return Err(format!("it has {} bytes", metadata.len()));
    }
    std::fs::read_to_string(path).map_err(|error| format!("cannot read it: {error}"))
}

/// Turns byte offsets of the text into line numbers, and parsed values into ours.
struct Lines<'a>(&'a str);

impl Lines<'_> {
    fn number(&self, offset: usize) -> usize {
        let bytes = self.0.as_bytes();
        let before = bytes.get(..offset).unwrap_or(bytes);
        1 + before.iter().filter(|byte| **byte == b'\n').count()
    }

    fn table(&self, table: &DeTable<'_>) -> Table {
        table
            .iter()
            .map(|(key, value)| {
                let entry = Entry {
                    value: self.value(value),
                    line: self.number(key.span().start),
                };
                (key.get_ref().to_string(), entry)
            })
            .collect()
    }

    fn value(&self, value: &Spanned<DeValue<'_>>) -> Value {
        match value.get_ref() {
            DeValue::String(text) => Value::Text(text.to_string()),
            DeValue::Integer(digits) => i64::from_str_radix(digits.as_str(), digits.radix())
                .map_or_else(|_| Value::Other(digits.to_string()), Value::Integer),
            DeValue::Boolean(value) => Value::Switch(*value),
            DeValue::Array(items) => {
                Value::List(items.iter().map(|item| self.value(item)).collect())
            }
            DeValue::Table(table) => Value::Table(self.table(table)),
            DeValue::Float(digits) => Value::Other(digits.to_string()),
            DeValue::Datetime(date) => Value::Other(date.to_string()),
        }
    }
}
