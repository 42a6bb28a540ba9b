//! Where values come from, before anybody knows their types: the command line, the environment and the file,
//! each value with the name and the place it was written at. Precedence is decided here and nowhere else:
//! flag, `MOORING_*`, ContextForge's variable, file. Defaults are in the rows.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use super::file::FileTables;
use super::setting::SettingInfo;
use super::value::Value;

/// A value of a setting, with the name and place where it was written.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SourceValue {
    pub(super) written_as: String,
    pub(super) place: String,
    pub(super) value: Value,
}

/// A source of setting values: file, environment or flags.
pub(super) trait Source {
    /// The value that wins, or `None` where it was not written.
    fn find(&self, about: &SettingInfo) -> Option<SourceValue>;

    /// The name and place to report for a setting that is not set.
    fn describe_unset(&self, about: &SettingInfo) -> (String, String) {
        (about.key.to_owned(), "default".to_owned())
    }
}

/// A copy of the process environment, so that the parser is a function of its arguments.
#[derive(Debug, Clone, Default)]
pub struct Environment(BTreeMap<String, OsString>);

impl Environment {
    /// The environment of this process; names that are no UTF-8 cannot be settings and are left out.
    pub fn of_process() -> Self {
        Self(
            std::env::vars_os()
                .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
                .collect(),
        )
    }

    /// The value of a variable that is set and not empty: an empty variable counts as unset, because
    /// that is what `NAME=${NAME:-}` in a compose file makes of a missing one.
    pub(super) fn get(&self, name: &str) -> Option<Value> {
        let value = self.0.get(name).filter(|value| !value.is_empty())?;
        Some(match value.to_str() {
            Some(text) => Value::Word(text.to_owned()),
            None => Value::Other("bytes that are not UTF-8".to_owned()),
        })
    }

    /// What a text of the file stands for: itself or, behind `env:`, the value of the variable that it names, so that the
    /// file need not hold a secret itself. The reason never repeats a value.
    pub(super) fn resolve(&self, text: &str) -> Result<String, String> {
        let Some(variable) = text.strip_prefix("env:") else {
            return Ok(text.to_owned());
        };
        match self.get(variable) {
            Some(Value::Word(value)) => Ok(value),
            Some(_) => Err(format!("the variable {variable} is not UTF-8")),
            None => Err(format!(
                "the environment variable {variable:?} is not set, or empty"
            )),
        }
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

impl<N: Into<String>, V: Into<OsString>> FromIterator<(N, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(variables: I) -> Self {
        Self(
            variables
                .into_iter()
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
        )
    }
}

/// What the command line of `mooring serve` may set.
#[derive(Debug, Clone, Default)]
pub struct Flags {
    /// `--config FILE`.
    pub config: Option<PathBuf>,
    /// `--listen ADDRESS`.
    pub listen: Option<String>,
    /// `--store URL`.
    pub store: Option<String>,
    /// Every `--server ID=URL[,URL]` or `--server "ID=PROGRAM ARGUMENT..."`.
    pub servers: Vec<String>,
    /// The `--server ID` of `mooring stdio`.
    pub wanted: Option<String>,
}

impl Flags {
    fn get(&self, flag: &str) -> Option<&str> {
        match flag {
            "--listen" => self.listen.as_deref(),
            "--store" => self.store.as_deref(),
            _ => None,
        }
    }
}

/// All places at once.
#[derive(Debug)]
pub(super) struct Layers<'a> {
    pub(super) flags: &'a Flags,
    pub(super) environment: &'a Environment,
    pub(super) file: &'a FileTables,
}

impl Source for Layers<'_> {
    fn find(&self, about: &SettingInfo) -> Option<SourceValue> {
        let written = |written_as: String, place: &str, value| SourceValue {
            written_as,
            place: place.to_owned(),
            value,
        };
        let flag = about
            .flag
            .and_then(|flag| Some((flag, self.flags.get(flag)?)));
        if let Some((flag, text)) = flag {
            let value = Value::Word(text.to_owned());
            return Some(written(flag.to_owned(), "command line", value));
        }
        let names = std::iter::once(about.environment_name());
        for name in names.chain(about.contextforge_name.map(str::to_owned)) {
            if let Some(value) = self.environment.get(&name) {
                return Some(written(name, "environment", value));
            }
        }
        let entry = self.file.section(about.section())?.get(about.name())?;
        let place = self.file.place(entry.line);
        Some(written(about.key.to_owned(), &place, entry.value.clone()))
    }
}
