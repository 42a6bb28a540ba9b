//! `[[servers]]` and `[default]`: the MCP servers, and which of them `/mcp` means. Ids are unique, and no server has
//! a field of another kind.

mod agent;
mod borrowed;
mod entry;
mod fields;
mod group;
mod headers;
mod http;
mod instance;
mod kept;
mod kinds;
mod sse;
mod stdio;

use std::fmt;

use super::affinity::Affinity;
use super::code::{CodeSection, CodeServerSettings, parse_tag};
use super::file::FileTables;
use super::problem::SettingsError;
use super::reader::{Reader, Reason};
use super::setting::{Disclosure, List, Setting, SettingInfo, Text};
use super::source::{Environment, Flags};

use entry::{ServerEntry, ServerText};
use kinds::{KIND, Kind};

pub use agent::{
    AgentServerSettings, CommandTemplate, Condition, ConditionError, OutputForm, OutputRules,
    Pointer, PointerError, Results, TemplateError,
};
pub use group::{GroupNames, GroupServerSettings};
pub use headers::UpstreamHeaders;
pub use http::HttpServerSettings;
pub use instance::Instance;
pub use kept::{Concurrency, OnUpstreamLoss};
pub(super) use kinds::{SETTINGS, kinds_with};
pub use sse::SseServerSettings;
pub use stdio::{ChildVariables, CommandLine, INHERITED_DEFAULT, StdioServerSettings};

/// Most servers of one gateway.
pub(super) const SERVERS_MAX: usize = 256;

/// The id of the server that is there where none is configured.
const STANDARD_ID: &str = "sandbox";

pub(super) const ID: Text = Text {
    about: SettingInfo::new(
        "servers.id",
        "The server's name, as in `/servers/<id>/mcp`. Required.",
    ),
    default: None,
    shape: "1 to 60 characters out of letters, digits and . _ -, the first a letter or a digit, without \"__\"",
    bytes_max: 60,
    disclosure: Disclosure::Open,
};

const TAGS: List = List {
    about: SettingInfo::new(
        "servers.tags",
        "Words that the server goes by, and each of its tools with it. The `mount_rules` of servers of kind `code` choose \
         by them.",
    )
    .unset("none"),
    shape: "words of at most 64 bytes without spaces, commas and control characters",
    items_max: 64,
    item_bytes_max: 64,
    disclosure: Disclosure::Open,
};

/// The fields that every server has.
const COMMON_SETTINGS: &[Setting] = &[
    Setting::Text(&ID),
    Setting::Choice(&KIND),
    Setting::List(&TAGS),
];

pub(super) const DEFAULT_SERVER: Text = Text {
    about: SettingInfo::new("default.server", "The server that `/mcp` means.")
        .unset("the only server where there is just one; with several, `/mcp` answers 404"),
    default: None,
    shape: "the id of a configured server",
    bytes_max: 60,
    disclosure: Disclosure::Open,
};

/// The rows of `[default]`.
pub(super) const DEFAULT_SETTINGS: &[Setting] = &[Setting::Text(&DEFAULT_SERVER)];

/// The name of a server: 1 to 60 bytes of `[A-Za-z0-9._-]`, first a letter or digit, without `__`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServerId(String);

impl ServerId {
    pub(super) fn parse(text: &str) -> Result<Self, Reason> {
        let known = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
        if text.contains("__") {
            return Err(
                "\"__\" separates a server from its tool in a group's tool names".to_owned(),
            );
        }
        if !text.starts_with(|first: char| first.is_ascii_alphanumeric())
            || !text.chars().all(known)
        {
            return Err(String::new());
        }
        Ok(Self(text.to_owned()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ServerId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// What a server is, with what only such a server has.
#[derive(Debug, Clone)]
pub enum ServerKind {
    /// MCP over Streamable HTTP, somewhere else.
    Http(HttpServerSettings),
    /// Run by the gateway itself.
    Code(CodeServerSettings),
    /// A process of this worker for each session.
    Stdio(StdioServerSettings),
    /// MCP over HTTP+SSE of 2024-11-05, somewhere else.
    Sse(SseServerSettings),
    /// Several of the others behind one endpoint.
    Group(GroupServerSettings),
    /// A program that this worker runs once for each call.
    Agent(AgentServerSettings),
}

impl ServerKind {
    /// The word of `servers.kind`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Http(_) => kinds::HTTP,
            Self::Code(_) => kinds::CODE,
            Self::Stdio(_) => kinds::STDIO,
            Self::Sse(_) => kinds::SSE,
            Self::Group(_) => kinds::GROUP,
            Self::Agent(_) => kinds::AGENT,
        }
    }

    /// Whether its sessions live in a connection that one worker holds, so that the others forward to that worker. A
    /// group has none of its own: its members say it for themselves.
    pub fn lives_in_one_worker(&self) -> bool {
        match self {
            Self::Stdio(_) | Self::Sse(_) => true,
            Self::Http(_) | Self::Code(_) | Self::Group(_) | Self::Agent(_) => false,
        }
    }
}

/// One MCP server.
#[derive(Debug, Clone)]
pub struct ServerSettings {
    /// Its name.
    pub id: ServerId,
    /// What it is.
    pub kind: ServerKind,
    /// The words that it and its tools go by, at most 64.
    pub tags: Vec<String>,
}

/// The defaults that servers inherit.
#[derive(Debug, Clone, Copy)]
pub(super) struct ServerDefaults<'a> {
    pub(super) affinity: Affinity,
    pub(super) code: &'a CodeSection,
}

/// Parses every server of the file and of the flags. Where there is none at all, there is the standard one.
pub(super) fn parse(
    file: &FileTables,
    flags: &Flags,
    environment: &Environment,
    standards: ServerDefaults<'_>,
    errors: &mut SettingsError,
) -> Vec<ServerSettings> {
    let texts = ServerText::all(&flags.servers, environment);
    let entries = entry::collect(file, &texts, flags.wanted.as_deref(), errors);
    if entries.is_empty() && standards.code.is_enabled {
        return vec![ServerSettings {
            id: ServerId(STANDARD_ID.to_owned()),
            kind: ServerKind::Code(CodeServerSettings::from_defaults(&standards.code.standard)),
            tags: Vec::new(),
        }];
    }
    let mut servers: Vec<(ServerSettings, ServerEntry<'_>)> = Vec::new();
    for entry in entries {
        let Some(server) = parse_one(&entry, environment, standards, errors) else {
            continue;
        };
        if servers.iter().any(|(other, _)| other.id == server.id) {
            Reader::new(&entry, errors).refuse(
                &ID.about,
                format!("{:?}", server.id.as_str()),
                "another server has this id".to_owned(),
                "an id of its own for every server".to_owned(),
            );
        } else {
            servers.push((server, entry));
        }
    }
    group::refuse_bad_members(&servers, errors);
    servers.into_iter().map(|(server, _)| server).collect()
}

/// `None` where the server has no usable id, which was noted.
fn parse_one(
    entry: &ServerEntry<'_>,
    environment: &Environment,
    standards: ServerDefaults<'_>,
    errors: &mut SettingsError,
) -> Option<ServerSettings> {
    let mut reader = Reader::new(entry, errors);
    let id = reader.text(&ID, ServerId::parse);
    if !reader.is_written(&ID.about) {
        reader.refuse(
            &ID.about,
            String::new(),
            "it is missing".to_owned(),
            ID.shape.to_owned(),
        );
    }
    let kind = reader.choice(&KIND);
    let is_refused = entry.has_a_refused_kind();
    if !is_refused {
        kinds::refuse_foreign_fields(&mut reader, kind.name());
    }
    let kind = match kind {
        Kind::Http => {
            let standard = standards.affinity;
            ServerKind::Http(http::parse(&mut reader, environment, standard, is_refused))
        }
        Kind::Code => {
            let standard = &standards.code.standard;
            ServerKind::Code(CodeServerSettings::parse(&mut reader, standard))
        }
        Kind::Stdio => ServerKind::Stdio(stdio::parse(&mut reader, environment)),
        Kind::Sse => ServerKind::Sse(sse::parse(&mut reader, environment)),
        Kind::Group => ServerKind::Group(group::parse(&mut reader)),
        Kind::Agent => ServerKind::Agent(agent::parse(&mut reader, environment)),
    };
    let tags = reader.list(&TAGS, parse_tag).unwrap_or_default();
    Some(ServerSettings {
        id: id?,
        kind,
        tags,
    })
}

/// The server that `/mcp` means, if there is one.
pub(super) fn parse_default(
    reader: &mut Reader<'_>,
    servers: &[ServerSettings],
) -> Option<ServerId> {
    let Some(id) = reader.text(&DEFAULT_SERVER, ServerId::parse) else {
        return match servers {
            [only] => Some(only.id.clone()),
            _ => None,
        };
    };
    let known = servers.iter().any(|server| server.id == id);
    // With a server refused, the id may well be the one that is missing.
    if !known && !reader.was_refused(&ID.about) {
        let ids: Vec<&str> = servers.iter().map(|server| server.id.as_str()).collect();
        let allowed = match super::setting::quoted(ids.iter().copied()) {
            none if none.is_empty() => "nothing, as long as no server is configured".to_owned(),
            ids => ids,
        };
        reader.refuse(
            &DEFAULT_SERVER.about,
            format!("{:?}", id.as_str()),
            "there is no server of this id".to_owned(),
            allowed,
        );
    }
    Some(id)
}
