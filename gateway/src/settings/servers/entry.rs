//! One server as it was written: a `[[servers]]` table of the file, a `--server` flag, or both, in which
//! case the flag's instances win over the file's. An agent that is known needs neither: its name says everything.

use super::super::file::{Entry, FileTables, Table};
use super::super::knob::About;
use super::super::problem::{Problem, SettingsError};
use super::super::reader::{kind, value_shown};
use super::super::source::{Source, Value, Written};
use super::agent::PROFILE;
use super::instance::INSTANCES;
use super::kinds::{AGENT, KIND};
use super::{ID, SERVERS_MAX, agent, fields};
use crate::settings::knob::Disclosure;

const FLAG: &str = "--server";
const FLAG_SHAPE: &str = "ID=URL[,URL]..., such as tools=http://127.0.0.1:9001/mcp";

/// One server as it was written.
#[derive(Debug)]
pub(super) struct ServerEntry<'a> {
    file: &'a FileTables,
    table: Option<(usize, &'a Table)>,
    flag: Option<FlagServer<'a>>,
}

#[derive(Debug, Clone, Copy)]
struct FlagServer<'a> {
    id: &'a str,
    says: FlagSays<'a>,
}

/// What a flag says of a server besides its id.
#[derive(Debug, Clone, Copy)]
enum FlagSays<'a> {
    /// Where its instances are.
    Instances(&'a str),
    /// It is the agent that is known by this id.
    Agent,
}

impl ServerEntry<'_> {
    /// The field under its own name or, where that is not written, another one.
    fn field(&self, about: &About) -> Option<(String, &Entry)> {
        let (index, table) = self.table?;
        let (found, entry) =
            fields::names(about).find_map(|name| Some((name, fields::find(table, name)?)))?;
        Some((format!("servers[{index}].{found}"), entry))
    }

    fn flagged(&self, about: &About) -> Option<Written> {
        let flag = self.flag?;
        let text = match (about.key, flag.says) {
            (key, _) if key == ID.about.key => flag.id,
            (key, FlagSays::Instances(urls)) if key == INSTANCES.about.key => urls,
            (key, FlagSays::Agent) if key == KIND.about.key => AGENT,
            (key, FlagSays::Agent) if key == PROFILE.about.key => flag.id,
            _ => return None,
        };
        Some(Written {
            written_as: format!("{FLAG} {}", flag.id),
            place: "command line".to_owned(),
            value: Value::Word(text.to_owned()),
        })
    }

    /// Whether `kind` is nothing that is served, so that nobody knows which fields the server should have.
    pub(super) fn has_a_refused_kind(&self) -> bool {
        let Some((_, entry)) = self.field(&KIND.about) else {
            return false;
        };
        match &entry.value {
            Value::Text(kind) => KIND.options().all(|option| option.name != kind),
            _ => true,
        }
    }

    /// Whether `kind` names something that a later version serves, whose fields nobody knows yet.
    fn has_a_later_kind(&self) -> bool {
        let Some((_, entry)) = self.field(&KIND.about) else {
            return false;
        };
        matches!(&entry.value, Value::Text(kind) if KIND.later.contains(&kind.as_str()))
    }

    /// Refuses fields that no server has, and those that say the same twice.
    fn refuse_bad_fields(&self, errors: &mut SettingsError) {
        if let Some((index, table)) = self.table
            && !self.has_a_later_kind()
        {
            fields::refuse(self.file, index, table, errors);
        }
    }
}

impl Source for ServerEntry<'_> {
    fn written(&self, about: &About) -> Option<Written> {
        if let Some(written) = self.flagged(about) {
            return Some(written);
        }
        let (written_as, entry) = self.field(about)?;
        Some(Written {
            written_as,
            place: self.file.place(entry.line),
            value: entry.value.clone(),
        })
    }

    fn unwritten(&self, about: &About) -> (String, String) {
        let Some((index, table)) = self.table else {
            return (FLAG.to_owned(), "command line".to_owned());
        };
        let first_line = table.values().map(|entry| entry.line).min();
        let place = first_line.map_or(String::new(), |line| self.file.place(line));
        (format!("servers[{index}].{}", about.name()), place)
    }
}

/// Every server of the file in its order, then the servers that only flags name. `wanted` is the one that is to be served
/// alone: where nobody says what it is, it may be an agent that is known.
pub(super) fn collect<'a>(
    file: &'a FileTables,
    flags: &'a [String],
    wanted: Option<&'a str>,
    errors: &mut SettingsError,
) -> Vec<ServerEntry<'a>> {
    let mut flags = flag_servers(flags, errors);
    let mut wanted = wanted.filter(|id| flags.iter().all(|flag| flag.id != *id));
    let mut entries = Vec::new();
    for (index, table) in file_tables(file, errors) {
        let id = match table.get(ID.about.name()).map(|entry| &entry.value) {
            Some(Value::Text(id)) => Some(id.as_str()),
            _ => None,
        };
        wanted = wanted.filter(|wanted| Some(*wanted) != id);
        let position = flags.iter().position(|flag| Some(flag.id) == id);
        let entry = ServerEntry {
            file,
            table: Some((index, table)),
            flag: position.map(|position| flags.remove(position)),
        };
        entry.refuse_bad_fields(errors);
        entries.push(entry);
    }
    flags.extend(
        wanted
            .filter(|id| agent::is_profile(id))
            .map(|id| FlagServer {
                id,
                says: FlagSays::Agent,
            }),
    );
    entries.extend(flags.into_iter().map(|flag| ServerEntry {
        file,
        table: None,
        flag: Some(flag),
    }));
    if entries.len() > SERVERS_MAX {
        errors.push(Problem {
            key: "servers".to_owned(),
            written_as: "servers".to_owned(),
            place: String::new(),
            value: format!("{} servers", entries.len()),
            reason: String::new(),
            allowed: format!("at most {SERVERS_MAX}"),
        });
        entries.truncate(SERVERS_MAX);
    }
    entries
}

fn file_tables<'a>(file: &'a FileTables, errors: &mut SettingsError) -> Vec<(usize, &'a Table)> {
    let Some(entry) = file.root().get("servers") else {
        return Vec::new();
    };
    let mut refuse = |value: &Value| {
        errors.push(Problem {
            key: "servers".to_owned(),
            written_as: "servers".to_owned(),
            place: file.place(entry.line),
            value: value_shown(value, Disclosure::Open),
            reason: format!("it is {}", kind(value)),
            allowed: "tables, each under a [[servers]] line".to_owned(),
        });
    };
    let Value::List(items) = &entry.value else {
        refuse(&entry.value);
        return Vec::new();
    };
    let mut tables = Vec::new();
    for (index, item) in items.iter().enumerate() {
        match item {
            Value::Table(table) => tables.push((index, table)),
            other => refuse(other),
        }
    }
    tables
}

fn flag_servers<'a>(flags: &'a [String], errors: &mut SettingsError) -> Vec<FlagServer<'a>> {
    let mut servers: Vec<FlagServer<'a>> = Vec::new();
    for text in flags {
        let reason = match text.split_once('=') {
            Some((id, _)) if servers.iter().any(|other| other.id == id) => {
                format!("the server {id:?} is named twice; give it all its URLs at once")
            }
            Some((id, urls)) if !id.is_empty() && !id.contains("://") => {
                let says = FlagSays::Instances(urls);
                servers.push(FlagServer { id, says });
                continue;
            }
            _ => "it has no ID in front of an equals sign".to_owned(),
        };
        errors.push(Problem {
            key: FLAG.to_owned(),
            written_as: FLAG.to_owned(),
            place: "command line".to_owned(),
            value: value_shown(&Value::Text(text.clone()), Disclosure::Credentials),
            reason,
            allowed: FLAG_SHAPE.to_owned(),
        });
    }
    servers
}
