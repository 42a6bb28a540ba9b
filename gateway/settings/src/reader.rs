//! Converts written values to typed ones. An invalid value is recorded as a problem, with what is allowed, and replaced
//! by the default, so that parsing continues and all problems are reported at once. The caller must check the problems
//! before it uses the settings.

use std::fmt::Display;
use std::net::Ipv6Addr;
use std::num::{NonZeroU64, NonZeroUsize};
use std::time::Duration;

use super::problem::{Problem, SettingsError};
use super::setting::{
    Choice, InheritedSetting, Integer, List, Map, Row, Setting, SettingInfo, Switch, Tables, Text,
    Words,
};
use super::source::{Environment, Source, SourceValue};
use super::unknown::refuse_key;
use super::value::{Entry, Table, Value};

/// Why a subsystem's parser refuses a text, as a sentence for people.
pub(super) type Reason = String;

/// A type for which the row alone says how it is read.
pub(super) trait SettingValue: Sized {
    /// What such a row states.
    type Shape: Row;

    /// Reads the row's value.
    fn read(reader: &mut Reader<'_>, setting: &'static Self::Shape) -> Self;
}

impl SettingValue for bool {
    type Shape = Switch;

    fn read(reader: &mut Reader<'_>, setting: &'static Switch) -> Self {
        reader.switch(setting)
    }
}

impl<T: Words> SettingValue for T {
    type Shape = Choice;

    fn read(reader: &mut Reader<'_>, setting: &'static Choice) -> Self {
        reader.choice(setting)
    }
}

/// Numbers, from how many there are of the smallest unit: bytes, milliseconds, or what is counted. Where there need not
/// be one, 0 is none.
macro_rules! numbers {
    ($($type:ty: $from:expr;)+) => {
        $(impl SettingValue for $type {
            type Shape = Integer;

            fn read(reader: &mut Reader<'_>, setting: &'static Integer) -> Self {
                let scale: u64 = match setting.unit {
                    "MiB" => 1024 * 1024,
                    "seconds" => 1000,
                    "days" => 86_400_000,
                    _ => 1,
                };
                let number = reader.integer(setting).saturating_mul(scale);
                ($from)(number)
            }
        })+
    };
}

numbers! {
    u64: |number: u64| number;
    usize: |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    u32: |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    NonZeroUsize: |number: u64| {
        usize::try_from(number).ok().and_then(NonZeroUsize::new).unwrap_or(NonZeroUsize::MIN)
    };
    Duration: Duration::from_millis;
    Option<u32>: |number: u64| u32::try_from(number).ok().filter(|number| *number > 0);
    NonZeroU64: |number: u64| NonZeroU64::new(number).unwrap_or(NonZeroU64::MIN);
    Option<NonZeroU64>: NonZeroU64::new;
    Option<Duration>: |number: u64| (number > 0).then(|| Duration::from_millis(number));
}

/// Reads typed values from a source and notes what is wrong.
pub(super) struct Reader<'a> {
    source: &'a dyn Source,
    /// The process environment, which some defaults and values come from.
    pub(super) environment: &'a Environment,
    errors: &'a mut SettingsError,
}

impl<'a> Reader<'a> {
    pub(super) fn new(
        source: &'a dyn Source,
        environment: &'a Environment,
        errors: &'a mut SettingsError,
    ) -> Self {
        Self {
            source,
            environment,
            errors,
        }
    }

    /// The value that the row alone says how to read.
    pub(super) fn read<T: SettingValue>(&mut self, setting: &'static T::Shape) -> T {
        T::read(self, setting)
    }

    /// The value as this function reads it.
    pub(super) fn read_by<S, T>(
        &mut self,
        setting: &'static S,
        read: impl FnOnce(&mut Self, &'static S) -> T,
    ) -> T {
        read(self, setting)
    }

    /// The value of a row in `[code]`, or the server's own where that is set.
    pub(super) fn inherit<S: Row, T: Clone>(
        &mut self,
        rows: &'static InheritedSetting<S>,
        standard: Option<&T>,
        read: impl FnOnce(&mut Self, &'static S) -> T,
    ) -> T {
        match (standard, &rows.own) {
            (None, _) => read(self, &rows.standard),
            (Some(_), Some(own)) if self.is_written(own) => read(self, own),
            (Some(standard), _) => standard.clone(),
        }
    }

    /// What this function computes.
    pub(super) fn compute<T>(&mut self, compute: impl FnOnce(&mut Self) -> T) -> T {
        compute(self)
    }

    /// The value, or `None` where it is not written.
    pub(super) fn if_written<T: SettingValue>(&mut self, setting: &'static T::Shape) -> Option<T> {
        self.is_written(setting).then(|| self.read(setting))
    }

    /// Whether a setting is set in any source, valid or not.
    pub(super) fn is_written(&self, setting: &impl Row) -> bool {
        self.source.find(setting.about()).is_some()
    }

    /// Whether a value of this setting was refused.
    pub(super) fn was_refused(&self, setting: &impl Row) -> bool {
        self.errors.concerns(setting.about().key)
    }

    /// The name and place to report for a setting.
    fn position(&self, setting: &impl Row) -> (String, String) {
        match self.source.find(setting.about()) {
            Some(written) => (written.written_as, written.place),
            None => self.source.describe_unset(setting.about()),
        }
    }

    /// Refuses a value that is valid alone but conflicts with another.
    pub(super) fn refuse(
        &mut self,
        setting: &impl Row,
        value: impl Into<String>,
        reason: impl Into<Reason>,
        allowed: impl Into<String>,
    ) {
        let (written_as, place) = self.position(setting);
        self.errors.push(Problem {
            key: setting.about().key.to_owned(),
            written_as,
            place,
            value: value.into(),
            reason: reason.into(),
            allowed: allowed.into(),
        });
    }

    /// A limit in bytes for all messages, with room for the longest: `message_bytes_max` of `what`, by the setting `limit`.
    pub(super) fn at_least(
        &mut self,
        setting: &'static Integer,
        message_bytes_max: usize,
        what: &str,
        limit: &str,
    ) -> usize {
        let budget: usize = self.read(setting);
        if budget < message_bytes_max {
            self.refuse(
                setting,
                budget.to_string(),
                format!("{what} of {limit} ({message_bytes_max} bytes) would never fit"),
                format!("{message_bytes_max} or more, or a lower {limit}"),
            );
        }
        budget
    }

    /// The written value, as this function parses it; a refusal is recorded. None if nothing is written, or it was
    /// refused.
    fn written<T>(
        &mut self,
        row: Setting,
        read: impl FnOnce(&Value) -> Result<T, Reason>,
    ) -> Option<T> {
        let written = self.source.find(row.about())?;
        let value = read(&written.value);
        value
            .map_err(|reason| self.note(row, &written, reason))
            .ok()
    }

    fn integer(&mut self, setting: &'static Integer) -> u64 {
        let number = self.written(Setting::Integer(setting), |value| {
            let number = match value {
                Value::Integer(number) => u64::try_from(*number).ok(),
                Value::Word(word) => word.trim().parse().ok(),
                _ => None,
            };
            let number = number.filter(|number| setting.range.contains(number));
            number.ok_or(Reason::new())
        });
        number.unwrap_or(setting.default)
    }

    fn switch(&mut self, setting: &'static Switch) -> bool {
        let switch = self.written(Setting::Switch(setting), |value| {
            value.as_switch().ok_or(Reason::new())
        });
        switch.unwrap_or(setting.default)
    }

    fn choice<T: Words>(&mut self, setting: &'static Choice) -> T {
        let value = self.written(Setting::Choice(setting), |value| {
            let word = match value {
                Value::Word(word) => word.trim(),
                Value::Text(text) => text,
                _ => "",
            };
            T::of_word(word).ok_or_else(Reason::new)
        });
        let (_, default, _) = T::DEFAULT;
        value.unwrap_or(default)
    }

    /// The text, its default, or `None` where neither is there or the text was refused.
    pub(super) fn text<T>(
        &mut self,
        setting: &'static Text,
        parse: impl Fn(&str) -> Result<T, Reason>,
    ) -> Option<T> {
        if !self.is_written(setting) {
            return parse(setting.default?).ok();
        }
        let parsed = self.written(Setting::Text(setting), |value| {
            let text = match value {
                Value::Word(text) => text.trim(),
                Value::Text(text) => text,
                other => return Err(format!("it is {}, not a text", other.kind())),
            };
            match (text.len(), setting.default) {
                (0, None) => Ok(None),
                (0, Some(_)) => Err("it is empty".to_owned()),
                (bytes, _) if bytes > setting.bytes_max => Err(format!(
                    "it has {bytes} bytes, more than {}",
                    setting.bytes_max
                )),
                _ => parse(text).map(Some),
            }
        });
        parsed.flatten()
    }

    /// The list, or `None` where it was not written or not one item of it could be used.
    pub(super) fn list<T>(
        &mut self,
        setting: &'static List,
        parse: impl Fn(&str) -> Result<T, Reason>,
    ) -> Option<Vec<T>> {
        let row = Setting::List(setting);
        let items = self.written(row, |value| {
            let items = match value {
                Value::Word(word) => word_items(word)?,
                Value::List(items) => items.clone(),
                other => return Err(format!("it is {}, not a list", other.kind())),
            };
            match (items.len(), setting.items_max) {
                (count, most) if count > most => {
                    Err(format!("it has {count} items, more than {most}"))
                }
                _ => Ok(items),
            }
        })?;
        let written = self.source.find(&setting.about)?;
        let mut parsed = Vec::with_capacity(items.len());
        for item in items {
            match list_item(setting, &item, &parse) {
                Ok(value) => parsed.push(value),
                Err(reason) => {
                    let written = SourceValue {
                        value: item,
                        ..written.clone()
                    };
                    self.note(row, &written, reason);
                }
            }
        }
        Some(parsed)
    }

    /// A list that has to be there, with at least one item, and none twice; `item` is what a message calls one.
    pub(super) fn distinct<T: PartialEq + Display>(
        &mut self,
        setting: &'static List,
        parse: impl Fn(&str) -> Result<T, Reason>,
        empty: &str,
        item: &str,
    ) -> Vec<T> {
        let mut distinct: Vec<T> = Vec::new();
        let read = self.list(setting, parse).unwrap_or_default();
        if !self.is_written(setting) {
            self.refuse(setting, "", "it is missing", setting.allowed());
        } else if read.is_empty() && !self.was_refused(setting) {
            self.refuse(setting, "[]", empty, setting.allowed());
        }
        for value in read {
            if distinct.contains(&value) {
                let shown = format!("{:?}", value.to_string());
                self.refuse(
                    setting,
                    shown,
                    format!("{item} is a duplicate"),
                    setting.allowed(),
                );
            } else {
                distinct.push(value);
            }
        }
        distinct
    }

    /// What `entry` makes of each name and text of a table. Values are in no message: they may be secrets.
    pub(super) fn map(
        &mut self,
        setting: &'static Map,
        mut entry: impl FnMut(&str, &str) -> Result<(), Reason>,
    ) {
        let Some(written) = self.source.find(&setting.about) else {
            return;
        };
        let row = Setting::Map(setting);
        let Value::Table(table) = &written.value else {
            return self.note(row, &written, "it is not a table");
        };
        if table.len() > setting.entries_max {
            let (entries, most) = (table.len(), setting.entries_max);
            let reason = format!("it has {entries} entries, more than {most}");
            return self.note(row, &written, reason);
        }
        for (name, Entry { value, .. }) in table {
            let read = match value {
                Value::Text(text) => entry(name, text),
                _ => Err(format!("the value of {name:?} is not a text")),
            };
            if let Err(reason) = read {
                let written = SourceValue {
                    written_as: format!("{}.{name}", written.written_as),
                    place: written.place.clone(),
                    value: Value::Other(String::new()),
                };
                self.note(row, &written, reason);
            }
        }
    }

    /// What `read` makes of each table of a list; `None` where the list was not written or is none.
    pub(super) fn tables<T>(
        &mut self,
        setting: &'static Tables,
        mut read: impl FnMut(&mut Reader<'_>) -> T,
    ) -> Option<Vec<T>> {
        let row = Setting::Tables(setting);
        let written = self.source.find(&setting.about)?;
        let items = self.written(row, |value| {
            let items = match value {
                Value::Word(word) => json_tables(word),
                Value::List(items) => items.iter().map(Value::as_table).collect(),
                _ => None,
            };
            let items: Vec<Table> = items.ok_or("it is not a list of tables")?;
            match (items.len(), setting.tables_max) {
                (count, most) if count > most => {
                    Err(format!("it has {count} tables, more than {most}"))
                }
                _ => Ok(items),
            }
        })?;
        let tables = items.into_iter().enumerate().map(|(index, table)| {
            let source = TableSource {
                table,
                written_as: format!("{}[{index}]", written.written_as),
                place: written.place.clone(),
            };
            let names: Vec<&str> = setting.rows().map(|row| row.about().name()).collect();
            for name in source
                .table
                .keys()
                .filter(|name| !names.contains(&name.as_str()))
            {
                let written_as = format!("{}.{name}", source.written_as);
                refuse_key(&written_as, source.place.clone(), name, &names, self.errors);
            }
            read(&mut Reader::new(&source, self.environment, self.errors))
        });
        Some(tables.collect())
    }

    /// Notes a refused value together with what its setting allows.
    fn note(&mut self, setting: Setting, written: &SourceValue, reason: impl Into<Reason>) {
        self.errors.push(Problem {
            key: setting.about().key.to_owned(),
            written_as: written.written_as.clone(),
            place: written.place.clone(),
            value: written.value.shown(setting.about().disclosure),
            reason: reason.into(),
            allowed: setting.allowed(),
        });
    }
}

/// One table of a list of tables.
struct TableSource {
    table: Table,
    written_as: String,
    place: String,
}

impl Source for TableSource {
    fn find(&self, about: &SettingInfo) -> Option<SourceValue> {
        let entry = self.table.get(about.name())?;
        Some(SourceValue {
            written_as: format!("{}.{}", self.written_as, about.name()),
            place: self.place.clone(),
            value: entry.value.clone(),
        })
    }

    fn describe_unset(&self, about: &SettingInfo) -> (String, String) {
        let written_as = format!("{}.{}", self.written_as, about.name());
        (written_as, self.place.clone())
    }
}

/// A list of tables in the environment: a JSON array of objects, whose members are texts and lists of texts.
fn json_tables(word: &str) -> Option<Vec<Table>> {
    let tables: Vec<serde_json::Map<String, serde_json::Value>> =
        serde_json::from_str(word).ok()?;
    let entry = |(name, value): (String, serde_json::Value)| {
        let value = match value {
            serde_json::Value::String(text) => Value::Text(text),
            serde_json::Value::Array(items) => Value::List(items.iter().map(json_text).collect()),
            other => Value::Other(other.to_string()),
        };
        (name, Entry { value, line: 1 })
    };
    let tables = tables
        .into_iter()
        .map(|table| table.into_iter().map(entry).collect());
    Some(tables.collect())
}

fn json_text(value: &serde_json::Value) -> Value {
    match value.as_str() {
        Some(text) => Value::Text(text.to_owned()),
        None => Value::Other(value.to_string()),
    }
}

/// The items of a list in the environment: a JSON array of texts, as programs in Python write them, else separated by
/// commas.
fn word_items(word: &str) -> Result<Vec<Value>, Reason> {
    let items: Vec<String> = match serde_json::from_str(word) {
        Ok(items) => items,
        Err(_) if word.starts_with('[') && word.ends_with(']') && !has_ipv6_host(word) => {
            return Err(
                "it is in brackets and is no JSON array of texts: a shell takes the quotes out of NAME=[\"a\"], not out \
                 of NAME='[\"a\"]'"
                    .to_owned(),
            );
        }
        Err(_) => word.split(',').map(|item| item.trim().to_owned()).collect(),
    };
    Ok(items.into_iter().map(Value::Text).collect())
}

/// Whether one of the items is an address such as `[::1]`.
fn has_ipv6_host(word: &str) -> bool {
    word.split(',').any(|item| {
        let inner = item.trim().strip_prefix('[');
        let inner = inner.and_then(|rest| rest.strip_suffix(']'));
        inner.is_some_and(|address| address.parse::<Ipv6Addr>().is_ok())
    })
}

fn list_item<T>(
    setting: &List,
    item: &Value,
    parse: &impl Fn(&str) -> Result<T, Reason>,
) -> Result<T, Reason> {
    let Value::Text(text) = item else {
        return Err(format!("the item is {}, not a text", item.kind()));
    };
    if text.is_empty() {
        return Err("an item is empty".to_owned());
    }
    if text.len() > setting.item_bytes_max {
        let (bytes, most) = (text.len(), setting.item_bytes_max);
        return Err(format!("the item has {bytes} bytes, more than {most}"));
    }
    parse(text)
}

/// Reads a text as this function parses it; none if there is no text, or it was refused.
pub(super) fn text<T>(
    parse: impl Fn(&str) -> Result<T, Reason>,
) -> impl FnOnce(&mut Reader<'_>, &'static Text) -> Option<T> {
    move |reader, setting| reader.text(setting, parse)
}

/// Reads a list, each item as this function parses it; empty if there is none.
pub(super) fn list<T>(
    parse: impl Fn(&str) -> Result<T, Reason>,
) -> impl FnOnce(&mut Reader<'_>, &'static List) -> Vec<T> {
    move |reader, setting| reader.list(setting, parse).unwrap_or_default()
}
