//! The names of the fields of one `[[servers]]` table: where a field stands, also in a table within the table, and
//! which names no field has. Unknown names are refused, and so is a field that is written under two names.

use super::kinds;
use crate::file::FileTables;
use crate::problem::{Problem, SettingsError};
use crate::setting::{Disclosure, Row, Setting, SettingInfo};
use crate::unknown::key_problem;
use crate::value::{Entry, Table, Value};

/// Every name of a field, its own first.
pub(super) fn names(about: &SettingInfo) -> impl Iterator<Item = &'static str> {
    std::iter::once(about.name()).chain(about.aliases.iter().copied())
}

/// What stands under a name, whose dots lead into tables.
pub(super) fn find<'a>(table: &'a Table, name: &str) -> Option<&'a Entry> {
    match name.split_once('.') {
        None => table.get(name),
        Some((first, rest)) => match &table.get(first)?.value {
            Value::Table(inner) => find(inner, rest),
            _ => None,
        },
    }
}

/// Notes every name of the table that no field has, and every field that is written twice.
pub(super) fn refuse(file: &FileTables, index: usize, table: &Table, errors: &mut SettingsError) {
    refuse_unknown(file, &format!("servers[{index}]"), "", table, errors);
    for setting in kinds::fields() {
        refuse_twice(file, index, table, setting, errors);
    }
}

/// Looks at one table, and at the tables in it; `path` leads to it and ends with a dot, unless it is empty.
fn refuse_unknown(
    file: &FileTables,
    server: &str,
    path: &str,
    table: &Table,
    errors: &mut SettingsError,
) {
    let known = names_below(path);
    for (name, entry) in table {
        let place = file.place(entry.line);
        let written_as = format!("{server}.{path}{name}");
        let is_field = kinds::fields().any(|setting| {
            names(setting.about()).any(|field| field.strip_prefix(path) == Some(name))
        });
        match &entry.value {
            _ if is_field => {}
            Value::Table(inner) if known.contains(&name.as_str()) => {
                refuse_unknown(file, server, &format!("{path}{name}."), inner, errors);
            }
            other if known.contains(&name.as_str()) => errors.push(Problem {
                key: written_as.clone(),
                written_as,
                place,
                value: other.shown(Disclosure::Open),
                reason: format!("it is {}, not a table", other.kind()),
                allowed: "a table".to_owned(),
            }),
            _ => errors.push(key_problem(written_as, place, name, &known)),
        }
    }
}

/// What may stand in the table that `path` leads to, each once.
fn names_below(path: &str) -> Vec<&'static str> {
    let mut known = Vec::new();
    for setting in kinds::fields() {
        for name in names(setting.about()) {
            let first = name
                .strip_prefix(path)
                .map(|rest| rest.split_once('.').map_or(rest, |(first, _)| first));
            known.extend(first.filter(|first| !known.contains(first)));
        }
    }
    known
}

fn refuse_twice(
    file: &FileTables,
    index: usize,
    table: &Table,
    setting: &Setting,
    errors: &mut SettingsError,
) {
    let about = setting.about();
    let mut written = names(about).filter_map(|name| Some((name, find(table, name)?)));
    if let (Some(_), Some((name, entry))) = (written.next(), written.next()) {
        let all: Vec<&str> = names(about).collect();
        errors.push(Problem {
            key: about.key.to_owned(),
            written_as: format!("servers[{index}].{name}"),
            place: file.place(entry.line),
            value: entry.value.shown(Disclosure::Open),
            reason: "it says the same as another key of this server".to_owned(),
            allowed: format!("one of {}", all.join(", ")),
        });
    }
}
