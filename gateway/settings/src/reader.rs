//! From written values to typed ones. A value that does not fit is noted with what is allowed and the default
//! stands in for it, so that parsing goes on and every problem is reported at once; whoever started the
//! reader must look at the problems before using what came out.

use std::collections::BTreeMap;

use super::problem::{Problem, SettingsError};
use super::setting::{Choice, Disclosure, Integer, List, Map, Setting, SettingInfo, Switch, Text};
use super::source::{Source, SourceValue};
use super::value::Value;

/// Why a subsystem's parser refuses a text, as a sentence for people.
pub(super) type Reason = String;

/// Reads typed values from a source and notes what is wrong.
pub(super) struct Reader<'a> {
    source: &'a dyn Source,
    errors: &'a mut SettingsError,
}

impl<'a> Reader<'a> {
    pub(super) fn new(source: &'a dyn Source, errors: &'a mut SettingsError) -> Self {
        Self { source, errors }
    }

    /// Whether a setting is set in any source, valid or not.
    pub(super) fn is_written(&self, about: &SettingInfo) -> bool {
        self.source.find(about).is_some()
    }

    /// Whether a value of this setting was refused.
    pub(super) fn was_refused(&self, about: &SettingInfo) -> bool {
        self.errors.concerns(about.key)
    }

    /// The name and place to report for a setting.
    pub(super) fn position(&self, about: &SettingInfo) -> (String, String) {
        match self.source.find(about) {
            Some(written) => (written.written_as, written.place),
            None => self.source.describe_unset(about),
        }
    }

    /// Refuses a value that is fine by itself and impossible beside another.
    pub(super) fn refuse(
        &mut self,
        about: &SettingInfo,
        value: String,
        reason: Reason,
        allowed: String,
    ) {
        let (written_as, place) = self.position(about);
        self.errors.push(Problem {
            key: about.key.to_owned(),
            written_as,
            place,
            value,
            reason,
            allowed,
        });
    }

    pub(super) fn integer(&mut self, setting: &'static Integer) -> u64 {
        let Some(written) = self.source.find(&setting.about) else {
            return setting.default;
        };
        let number = match &written.value {
            Value::Integer(number) => u64::try_from(*number).ok(),
            Value::Word(word) => word.trim().parse().ok(),
            _ => None,
        };
        match number.filter(|number| (setting.least..=setting.most).contains(number)) {
            Some(number) => number,
            None => {
                self.note(Setting::Integer(setting), &written, String::new());
                setting.default
            }
        }
    }

    /// The number, or `None` where leaving it out is a case of its own, and so it was.
    pub(super) fn integer_if_written(&mut self, setting: &'static Integer) -> Option<u64> {
        self.is_written(&setting.about)
            .then(|| self.integer(setting))
    }

    /// The environment has no booleans, so it may say on, yes and 1 as well; the file may not.
    pub(super) fn switch(&mut self, setting: &'static Switch) -> bool {
        let Some(written) = self.source.find(&setting.about) else {
            return setting.default;
        };
        let value = match &written.value {
            Value::Switch(value) => Some(*value),
            Value::Word(word) => match word.trim().to_ascii_lowercase().as_str() {
                "true" | "on" | "yes" | "1" => Some(true),
                "false" | "off" | "no" | "0" => Some(false),
                _ => None,
            },
            _ => None,
        };
        value.unwrap_or_else(|| {
            self.note(Setting::Switch(setting), &written, String::new());
            setting.default
        })
    }

    /// What is written, or another value in the place of the default.
    pub(super) fn switch_or(&mut self, setting: &'static Switch, unset: bool) -> bool {
        if self.is_written(&setting.about) {
            self.switch(setting)
        } else {
            unset
        }
    }

    pub(super) fn choice<T: Copy + std::fmt::Debug>(&mut self, setting: &'static Choice<T>) -> T {
        let Some(written) = self.source.find(&setting.about) else {
            return setting.default.value;
        };
        let word = match &written.value {
            Value::Word(word) => Some(word.trim()),
            Value::Text(text) => Some(text.as_str()),
            _ => None,
        };
        if let Some(option) = setting.options().find(|option| Some(option.name) == word) {
            return option.value;
        }
        let reason = match word {
            Some(word) if setting.later.contains(&word) => {
                format!("{word:?} is not served by this version of mooring")
            }
            _ => String::new(),
        };
        self.note(Setting::Choice(setting), &written, reason);
        setting.default.value
    }

    /// The word's value, or another one in the place of the default.
    pub(super) fn choice_or<T: Copy + std::fmt::Debug>(
        &mut self,
        setting: &'static Choice<T>,
        unset: T,
    ) -> T {
        if self.is_written(&setting.about) {
            self.choice(setting)
        } else {
            unset
        }
    }

    /// The text, its default, or `None` where neither is there or the text was refused.
    pub(super) fn text<T>(
        &mut self,
        setting: &'static Text,
        parse: impl Fn(&str) -> Result<T, Reason>,
    ) -> Option<T> {
        let Some(written) = self.source.find(&setting.about) else {
            return parse(setting.default?).ok();
        };
        let parsed = match &written.value {
            Value::Word(text) | Value::Text(text) if text.is_empty() => match setting.default {
                None => return None,
                Some(_) => Err("it is empty".to_owned()),
            },
            Value::Word(text) | Value::Text(text) if text.len() > setting.bytes_max => {
                Err(format!(
                    "it has {} bytes, more than {}",
                    text.len(),
                    setting.bytes_max
                ))
            }
            Value::Word(text) => parse(text.trim()),
            Value::Text(text) => parse(text),
            other => Err(format!("it is {}, not a text", other.kind())),
        };
        match parsed {
            Ok(value) => Some(value),
            Err(reason) => {
                self.note(Setting::Text(setting), &written, reason);
                None
            }
        }
    }

    /// The list, or `None` where it was not written or not one item of it could be used.
    pub(super) fn list<T>(
        &mut self,
        setting: &'static List,
        parse: impl Fn(&str) -> Result<T, Reason>,
    ) -> Option<Vec<T>> {
        let written = self.source.find(&setting.about)?;
        let items: Vec<Value> = match &written.value {
            Value::Word(word) => word_items(word),
            Value::List(items) => items.clone(),
            other => {
                let reason = format!("it is {}, not a list", other.kind());
                self.note(Setting::List(setting), &written, reason);
                return None;
            }
        };
        if items.len() > setting.items_max {
            let reason = format!(
                "it has {} items, more than {}",
                items.len(),
                setting.items_max
            );
            self.note(Setting::List(setting), &written, reason);
            return None;
        }
        let mut parsed = Vec::with_capacity(items.len());
        for item in &items {
            match list_item(setting, item, &parse) {
                Ok(value) => parsed.push(value),
                Err(reason) => self.note(
                    Setting::List(setting),
                    &SourceValue {
                        value: item.clone(),
                        ..written.clone()
                    },
                    reason,
                ),
            }
        }
        Some(parsed)
    }

    /// The table's entries as texts. Values are never repeated in a message: they may be secrets.
    pub(super) fn map(&mut self, setting: &'static Map) -> BTreeMap<String, String> {
        let Some(written) = self.source.find(&setting.about) else {
            return BTreeMap::new();
        };
        let Value::Table(table) = &written.value else {
            let reason = "it is not a table".to_owned();
            self.note(Setting::Map(setting), &written, reason);
            return BTreeMap::new();
        };
        if table.len() > setting.entries_max {
            let reason = format!(
                "it has {} entries, more than {}",
                table.len(),
                setting.entries_max
            );
            self.note(Setting::Map(setting), &written, reason);
            return BTreeMap::new();
        }
        let mut texts = BTreeMap::new();
        for (name, entry) in table {
            if let Value::Text(text) = &entry.value {
                texts.insert(name.clone(), text.clone());
            } else {
                let reason = format!("the value of {name:?} is not a text");
                self.note(Setting::Map(setting), &written, reason);
            }
        }
        texts
    }

    /// Notes a refused value together with what its setting allows.
    pub(super) fn note(&mut self, setting: Setting, written: &SourceValue, reason: Reason) {
        let disclosure = match setting {
            Setting::Text(text) => text.disclosure,
            Setting::List(list) => list.disclosure,
            _ => Disclosure::Open,
        };
        self.errors.push(Problem {
            key: setting.about().key.to_owned(),
            written_as: written.written_as.clone(),
            place: written.place.clone(),
            value: written.value.shown(disclosure),
            reason,
            allowed: setting.allowed(),
        });
    }
}

/// The items of a list in the environment: a JSON array of texts, as programs in Python write them, else separated by
/// commas.
fn word_items(word: &str) -> Vec<Value> {
    let items: Vec<String> = serde_json::from_str(word)
        .unwrap_or_else(|_| word.split(',').map(|item| item.trim().to_owned()).collect());
    items.into_iter().map(Value::Text).collect()
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
        return Err(format!(
            "the item has {} bytes, more than {}",
            text.len(),
            setting.item_bytes_max
        ));
    }
    parse(text)
}
