//! The settings file: TOML text in, named values with their line numbers out. Only the grammar is checked
//! here and that every table has a known name; keys and types are the reader's business.

use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::problem::SettingsError;
use super::value::{Entry, Table, Value};

/// A settings file is a page of text; what is larger is some other file.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// The whole file.
#[derive(Debug, Default)]
pub(super) struct FileTables {
    name: String,
    root: Table,
}

impl FileTables {
    /// Reads and parses the file at `path`, which `written_as` names; what is wrong goes to `errors`.
    pub(super) fn read(path: &Path, written_as: &str, errors: &mut SettingsError) -> Self {
        let name = path.display().to_string();
        match read_text(path) {
            Ok(text) => Self::parse(name, &text, errors),
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
        Self { name, root }
    }

    /// Where a line stands, for people.
    pub(super) fn place(&self, line: usize) -> String {
        format!("{}, line {line}", self.name)
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
