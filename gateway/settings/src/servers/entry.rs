//! One server as it was written: a `[[servers]]` table of the file, a `--server` flag or a line of `MOORING_SERVERS`, or
//! several of them: the flag wins over the variable, and that over the file. An agent that is known needs neither: its name says everything.

use super::agent::{self, PROFILE};
use super::http::HttpServerSettings;
use super::kinds::{self, AGENT, ID, KIND, Kind, STDIO};
use super::stdio::command::{ARGS, COMMAND, split_words};
use crate::file::FileTables;
use crate::problem::{Problem, SettingsError};
use crate::setting::{Disclosure, Row, SettingInfo, Words};
use crate::source::{Environment, Flags, Source, SourceValue};
use crate::unknown::{SERVERS_VARIABLE, UnknownFields};
use crate::value::{Entry, Table, Value};

/// Most servers of one gateway.
pub(crate) const SERVERS_MAX: usize = 256;

const FLAG: &str = "--server";
const FLAG_SHAPE: &str = "ID=URL[,URL]... or ID=PROGRAM [ARGUMENT]..., such as \
                          tools=http://127.0.0.1:9001/mcp or \"memory=npx -y @modelcontextprotocol/server-memory\"";

/// One server as it was written.
#[derive(Debug)]
pub(super) struct ServerEntry<'a> {
    table: Option<WrittenTable<'a>>,
    flag: Option<FlagServer>,
}

/// A table of a file.
#[derive(Clone, Copy, Debug)]
struct WrittenTable<'a> {
    file: &'a FileTables,
    /// Its position among those of the file.
    index: usize,
    table: &'a Table,
}

/// A server as a flag or a line of the environment has it.
#[derive(Debug)]
struct FlagServer {
    id: String,
    written_as: &'static str,
    place: &'static str,
    /// What it says, by the keys of the fields.
    values: Vec<(&'static str, Value)>,
}

impl<'a> ServerEntry<'a> {
    /// A server of which nothing is written.
    pub(super) fn unwritten() -> Self {
        Self {
            table: None,
            flag: None,
        }
    }

    /// Whether the server was added to those of the settings.
    pub(super) fn is_added(&self) -> bool {
        self.table.is_some_and(|table| table.file.is_added())
    }

    /// Where the server is written; none if only a flag names it.
    pub(super) fn place(&self) -> Option<String> {
        let WrittenTable { file, table, .. } = self.table?;
        let first_line = table.values().map(|entry| entry.line).min();
        first_line.map(|line| file.place(line))
    }

    /// The field under its own name or, where that is not written, another one; with its name and place.
    fn field(&self, about: &SettingInfo) -> Option<(String, String, &Entry)> {
        let WrittenTable { file, index, table } = self.table?;
        let (found, entry) = written(table, about).next()?;
        Some((
            format!("servers[{index}].{found}"),
            file.place(entry.line),
            entry,
        ))
    }

    fn flagged(&self, about: &SettingInfo) -> Option<SourceValue> {
        let flag = self.flag.as_ref()?;
        let (_, value) = flag.values.iter().find(|(key, _)| *key == about.key)?;
        Some(SourceValue {
            written_as: format!("{} {}", flag.written_as, flag.id),
            place: flag.place.to_owned(),
            value: value.clone(),
        })
    }

    /// What a table says that has a command and not its kind, as the settings of other MCP clients are.
    fn kind_of_command(&self) -> Option<SourceValue> {
        let (written_as, place, _) = self.field(&COMMAND.about)?;
        if self.field(&KIND.about).is_some() || self.field(&PROFILE.about).is_some() {
            return None;
        }
        Some(SourceValue {
            written_as,
            place,
            value: word(STDIO),
        })
    }

    /// Whether `kind` is not a valid kind, so that it is unknown which fields the server should have.
    pub(super) fn has_a_refused_kind(&self) -> bool {
        let Some((_, _, entry)) = self.field(&KIND.about) else {
            return false;
        };
        match &entry.value {
            Value::Text(kind) => Kind::of_word(kind).is_none(),
            _ => true,
        }
    }
}

impl Source for ServerEntry<'_> {
    fn find(&self, about: &SettingInfo) -> Option<SourceValue> {
        if let Some(written) = self.flagged(about) {
            return Some(written);
        }
        if about.key == KIND.about.key
            && let Some(written) = self.kind_of_command()
        {
            return Some(written);
        }
        let (written_as, place, entry) = self.field(about)?;
        let value = match &entry.value {
            Value::Text(text) if about.key == COMMAND.about.key => {
                match self.field(&ARGS.about) {
                    // Then the text is the program, whatever is in it.
                    Some(_) => Value::List(vec![Value::Text(text.clone())]),
                    None => list_of_words(text),
                }
            }
            value => value.clone(),
        };
        Some(SourceValue {
            written_as,
            place,
            value,
        })
    }

    fn describe_unset(&self, about: &SettingInfo) -> (String, String) {
        let Some(WrittenTable { index, .. }) = self.table else {
            let flag = self.flag.as_ref().map(|flag| (flag.written_as, flag.place));
            let (written_as, place) = flag.unwrap_or((FLAG, "command line"));
            return (written_as.to_owned(), place.to_owned());
        };
        let place = self.place().unwrap_or_default();
        (format!("servers[{index}].{}", about.name()), place)
    }
}

/// A command that is one text.
fn list_of_words(text: &str) -> Value {
    Value::List(split_words(text).into_iter().map(Value::Text).collect())
}

/// Every server of the files in their order, then the servers that only flags and the environment name. A wanted server is
/// the only one; if it is not defined anywhere, its id may be that of a known agent.
pub(super) fn collect<'a>(
    files: &[&'a FileTables],
    flags: &Flags,
    environment: &Environment,
    errors: &mut SettingsError,
) -> Vec<ServerEntry<'a>> {
    let wanted = flags.wanted.as_deref();
    let mut flags = flag_servers(&flags.servers, environment, errors);
    let mut wanted = wanted.filter(|id| flags.iter().all(|flag| flag.id != *id));
    let mut entries = Vec::new();
    let tables: Vec<_> = files
        .iter()
        .flat_map(|file| file_tables(file, errors))
        .collect();
    for written in tables {
        let WrittenTable { file, index, table } = written;
        let id = match table.get(ID.about.name()).map(|entry| &entry.value) {
            Some(Value::Text(id)) => Some(id.as_str()),
            _ => None,
        };
        wanted = wanted.filter(|wanted| Some(*wanted) != id);
        let position = flags.iter().position(|flag| Some(flag.id.as_str()) == id);
        let entry = ServerEntry {
            table: Some(written),
            flag: position.map(|position| flags.remove(position)),
        };
        refuse_bad_fields(file, index, table, errors);
        entries.push(entry);
    }
    flags.extend(wanted.filter(|id| agent::is_profile(id)).map(|id| {
        let values = vec![(KIND.about.key, word(AGENT)), (PROFILE.about.key, word(id))];
        FlagServer::new(id, FLAG, "command line", values)
    }));
    entries.extend(flags.into_iter().map(|flag| ServerEntry {
        flag: Some(flag),
        ..ServerEntry::unwritten()
    }));
    if entries.len() > SERVERS_MAX {
        let value = format!("{} servers", entries.len());
        errors.refuse("servers", "", value, "", format!("at most {SERVERS_MAX}"));
        entries.truncate(SERVERS_MAX);
    }
    entries
}

fn file_tables<'a>(file: &'a FileTables, errors: &mut SettingsError) -> Vec<WrittenTable<'a>> {
    let Some(entry) = file.root().get("servers") else {
        return Vec::new();
    };
    let mut refuse = |value: &Value| {
        let (place, shown) = (file.place(entry.line), value.shown(Disclosure::Open));
        let reason = format!("it is {}", value.kind());
        errors.refuse(
            "servers",
            place,
            shown,
            reason,
            "tables, each under a [[servers]] line",
        );
    };
    let Value::List(items) = &entry.value else {
        refuse(&entry.value);
        return Vec::new();
    };
    let mut tables = Vec::new();
    for (index, item) in items.iter().enumerate() {
        match item {
            Value::Table(table) => tables.push(WrittenTable { file, index, table }),
            other => refuse(other),
        }
    }
    tables
}

/// Those of the flags, each `ID=URL[,URL]...` or `ID=PROGRAM [ARGUMENT]...`, then those of the environment.
fn flag_servers(
    flags: &[String],
    environment: &Environment,
    errors: &mut SettingsError,
) -> Vec<FlagServer> {
    let lines = match environment.get(SERVERS_VARIABLE) {
        Some(Value::Word(lines)) => lines,
        _ => String::new(),
    };
    let lines = lines.lines().map(str::trim).filter(|line| !line.is_empty());
    let lines = lines.map(|line| (line, SERVERS_VARIABLE, "environment"));
    let flags = flags
        .iter()
        .map(|text| (text.as_str(), FLAG, "command line"));
    let mut servers: Vec<FlagServer> = Vec::new();
    for (text, written_as, place) in flags.chain(lines) {
        let named = text.split_once('=').map(|(id, says)| {
            let known = servers.iter().find(|other| other.id == id);
            (id, says, known.map(|known| known.written_as))
        });
        let reason = match named {
            Some((id, _, Some(known))) if known == written_as => {
                format!("the server {id:?} is named twice; give it all its URLs at once")
            }
            // A flag wins over the variable.
            Some((_, _, Some(_))) => continue,
            Some((id, says, None)) if !id.is_empty() && !id.contains("://") => {
                let values = match is_command(says) {
                    true => vec![
                        (KIND.about.key, word(STDIO)),
                        (COMMAND.about.key, list_of_words(says)),
                    ],
                    false => vec![(HttpServerSettings::instances.about.key, word(says))],
                };
                servers.push(FlagServer::new(id, written_as, place, values));
                continue;
            }
            _ => "it has no ID in front of an equals sign".to_owned(),
        };
        let value = word(text).shown(Disclosure::Credentials);
        errors.refuse(written_as, place, value, reason, FLAG_SHAPE);
    }
    servers
}

impl FlagServer {
    fn new(
        id: &str,
        written_as: &'static str,
        place: &'static str,
        mut values: Vec<(&'static str, Value)>,
    ) -> Self {
        values.push((ID.about.key, word(id)));
        Self {
            id: id.to_owned(),
            written_as,
            place,
            values,
        }
    }
}

fn word(text: &str) -> Value {
    Value::Word(text.to_owned())
}

/// Whether a text begins with a program: a name without a colon, or an absolute path. What has one is a URL, or was meant
/// to be one.
fn is_command(text: &str) -> bool {
    let words = split_words(text);
    words.first().is_some_and(|program| {
        let is_name = !program.contains(['/', ':', ',', '=']);
        is_name || (program.starts_with('/') && !program.starts_with("//"))
    })
}

/// Every name under which a field is written, with its entry.
fn written<'a>(
    table: &'a Table,
    about: &SettingInfo,
) -> impl Iterator<Item = (&'static str, &'a Entry)> {
    about
        .names()
        .filter_map(|name| Some((name, find(table, name)?)))
}

/// The entry under a name, whose dots lead into tables.
fn find<'a>(table: &'a Table, name: &str) -> Option<&'a Entry> {
    match name.split_once('.') {
        None => table.get(name),
        Some((first, rest)) => match &table.get(first)?.value {
            Value::Table(inner) => find(inner, rest),
            _ => None,
        },
    }
}

/// Notes every name of the table that no field has, and every field that is written twice.
fn refuse_bad_fields(file: &FileTables, index: usize, table: &Table, errors: &mut SettingsError) {
    let settings = kinds::fields().collect();
    UnknownFields { file, settings }.refuse(&format!("servers[{index}]"), "", table, errors);
    for about in kinds::fields().map(Row::about) {
        if let Some((name, entry)) = written(table, about).nth(1) {
            let all: Vec<&str> = about.names().collect();
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
}
