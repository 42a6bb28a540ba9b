//! One server as it was written: a `[[servers]]` table of the file, a `--server` flag or a line of `MOORING_SERVERS`, or
//! several of them: the flag wins over the variable, and that over the file. An agent that is known needs neither: its name says everything.

use super::agent::{self, PROFILE};
use super::http::HttpServerSettings;
use super::kinds::{AGENT, Kind, STDIO};
use super::stdio::command::{ARGS, COMMAND, split_words};
use super::{ID, KIND, SERVERS_MAX, fields};
use crate::file::FileTables;
use crate::problem::{Problem, SettingsError};
use crate::setting::{Disclosure, SettingInfo, Words};
use crate::source::{Environment, Source, SourceValue};
use crate::unknown::SERVERS_VARIABLE;
use crate::value::{Entry, Table, Value};

const FLAG: &str = "--server";
const FLAG_SHAPE: &str = "ID=URL[,URL]... or ID=PROGRAM [ARGUMENT]..., such as \
                          tools=http://127.0.0.1:9001/mcp or \"memory=npx -y @modelcontextprotocol/server-memory\"";

/// A server in one text: `ID=URL[,URL]...` or `ID=PROGRAM [ARGUMENT]...`.
#[derive(Debug)]
pub(super) struct ServerText {
    text: String,
    written_as: &'static str,
    place: &'static str,
}

impl ServerText {
    /// Those of the flags, then those of the environment.
    pub(super) fn all(flags: &[String], environment: &Environment) -> Vec<Self> {
        let flags = flags.iter().map(|text| Self {
            text: text.clone(),
            written_as: FLAG,
            place: "command line",
        });
        let lines = match environment.get(SERVERS_VARIABLE) {
            Some(Value::Word(lines)) => lines,
            _ => String::new(),
        };
        let lines = lines.lines().map(str::trim).filter(|line| !line.is_empty());
        let lines = lines.map(|line| Self {
            text: line.to_owned(),
            written_as: SERVERS_VARIABLE,
            place: "environment",
        });
        flags.chain(lines).collect()
    }
}

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
    says: FlagTarget<'a>,
    written_as: &'static str,
    place: &'static str,
}

/// What a flag sets for a server besides its id.
#[derive(Debug, Clone, Copy)]
enum FlagTarget<'a> {
    /// Where its instances are.
    Instances(&'a str),
    /// Which program it is.
    Command(&'a str),
    /// It is the agent that is known by this id.
    Agent,
}

impl ServerEntry<'_> {
    /// The field under its own name or, where that is not written, another one.
    fn field(&self, about: &SettingInfo) -> Option<(String, &Entry)> {
        let (index, table) = self.table?;
        let (found, entry) =
            fields::names(about).find_map(|name| Some((name, fields::find(table, name)?)))?;
        Some((format!("servers[{index}].{found}"), entry))
    }

    fn flagged(&self, about: &SettingInfo) -> Option<SourceValue> {
        let flag = self.flag?;
        let word = |text: &str| Value::Word(text.to_owned());
        let value = match (about.key, flag.says) {
            (key, _) if key == ID.about.key => word(flag.id),
            (key, FlagTarget::Instances(urls))
                if key == HttpServerSettings::instances.about.key =>
            {
                word(urls)
            }
            (key, FlagTarget::Command(_)) if key == KIND.about.key => word(STDIO),
            (key, FlagTarget::Command(text)) if key == COMMAND.about.key => list_of_words(text),
            (key, FlagTarget::Agent) if key == KIND.about.key => word(AGENT),
            (key, FlagTarget::Agent) if key == PROFILE.about.key => word(flag.id),
            _ => return None,
        };
        Some(SourceValue {
            written_as: format!("{} {}", flag.written_as, flag.id),
            place: flag.place.to_owned(),
            value,
        })
    }

    /// What a table says that has a command and not its kind, as the settings of other MCP clients are.
    fn kind_of_command(&self) -> Option<SourceValue> {
        let (written_as, entry) = self.field(&COMMAND.about)?;
        if self.field(&KIND.about).is_some() || self.field(&PROFILE.about).is_some() {
            return None;
        }
        Some(SourceValue {
            written_as,
            place: self.file.place(entry.line),
            value: Value::Word(STDIO.to_owned()),
        })
    }

    /// Whether `kind` is nothing that is served, so that nobody knows which fields the server should have.
    pub(super) fn has_a_refused_kind(&self) -> bool {
        let Some((_, entry)) = self.field(&KIND.about) else {
            return false;
        };
        match &entry.value {
            Value::Text(kind) => Kind::of_word(kind).is_none(),
            _ => true,
        }
    }

    /// Refuses fields that no server has, and those that say the same twice.
    fn refuse_bad_fields(&self, errors: &mut SettingsError) {
        if let Some((index, table)) = self.table {
            fields::refuse(self.file, index, table, errors);
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
        let (written_as, entry) = self.field(about)?;
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
            place: self.file.place(entry.line),
            value,
        })
    }

    fn describe_unset(&self, about: &SettingInfo) -> (String, String) {
        let Some((index, table)) = self.table else {
            let flag = self.flag.map(|flag| (flag.written_as, flag.place));
            let (written_as, place) = flag.unwrap_or((FLAG, "command line"));
            return (written_as.to_owned(), place.to_owned());
        };
        let first_line = table.values().map(|entry| entry.line).min();
        let place = first_line.map_or(String::new(), |line| self.file.place(line));
        (format!("servers[{index}].{}", about.name()), place)
    }
}

/// A command that is one text.
fn list_of_words(text: &str) -> Value {
    Value::List(split_words(text).into_iter().map(Value::Text).collect())
}

/// Every server of the file in its order, then the servers that only flags and the environment name. `wanted` is the one that is to be served
/// alone: where nobody says what it is, it may be an agent that is known.
pub(super) fn collect<'a>(
    file: &'a FileTables,
    texts: &'a [ServerText],
    wanted: Option<&'a str>,
    errors: &mut SettingsError,
) -> Vec<ServerEntry<'a>> {
    let mut flags = flag_servers(texts, errors);
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
                says: FlagTarget::Agent,
                written_as: FLAG,
                place: "command line",
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
            value: value.shown(Disclosure::Open),
            reason: format!("it is {}", value.kind()),
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

fn flag_servers<'a>(texts: &'a [ServerText], errors: &mut SettingsError) -> Vec<FlagServer<'a>> {
    let mut servers: Vec<FlagServer<'a>> = Vec::new();
    for ServerText {
        text,
        written_as,
        place,
    } in texts
    {
        let named = text.split_once('=').map(|(id, says)| {
            let known = servers.iter().find(|other| other.id == id);
            (id, says, known.map(|known| known.written_as))
        });
        let reason = match named {
            Some((id, _, Some(known))) if known == *written_as => {
                format!("the server {id:?} is named twice; give it all its URLs at once")
            }
            // A flag wins over the variable.
            Some((_, _, Some(_))) => continue,
            Some((id, says, None)) if !id.is_empty() && !id.contains("://") => {
                servers.push(FlagServer {
                    id,
                    says: if is_command(says) {
                        FlagTarget::Command(says)
                    } else {
                        FlagTarget::Instances(says)
                    },
                    written_as,
                    place,
                });
                continue;
            }
            _ => "it has no ID in front of an equals sign".to_owned(),
        };
        errors.push(Problem {
            key: (*written_as).to_owned(),
            written_as: (*written_as).to_owned(),
            place: (*place).to_owned(),
            value: Value::Text(text.clone()).shown(Disclosure::Credentials),
            reason,
            allowed: FLAG_SHAPE.to_owned(),
        });
    }
    servers
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
