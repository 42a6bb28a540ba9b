//! `[[servers]]` and `[default]`: the upstream MCP servers, and which of them `/mcp` means.
//! Ids are unique, every server has at least one instance, and no instance stands twice in one server.

mod entry;
mod headers;
mod instance;

use std::fmt;

use super::affinity::Affinity;
use super::file::FileTables;
use super::knob::{About, Choice, Disclosure, Knob, List, Named, Text};
use super::problem::SettingsError;
use super::reader::{Reader, Reason};
use super::source::{Environment, Flags};

pub use headers::UpstreamHeaders;
pub use instance::Instance;

/// Most servers of one gateway.
pub(super) const SERVERS_MAX: usize = 256;

pub(super) const ID: Text = Text {
    about: About::new(
        "servers.id",
        "The server's name, as in `/servers/<id>/mcp`. Required.",
    ),
    default: None,
    shape: "1 to 60 characters out of letters, digits and . _ -, the first a letter or a digit, without \"__\"",
    bytes_max: 60,
    disclosure: Disclosure::Open,
};

pub(super) const KIND: Choice<ServerKind> = Choice {
    about: About::new(
        "servers.kind",
        "What the server is and how it is reached. `type` and `server_type` are accepted as other names of \
         this key.",
    ),
    default: Named {
        name: "http",
        value: ServerKind::Http,
        meaning: "MCP over Streamable HTTP, at one or more instances",
    },
    others: &[],
    later: &["stdio", "sse", "code", "code_execution", "agent", "group"],
};

pub(super) const INSTANCES: List = List {
    about: About::new(
        "servers.instances",
        "Where the server runs: one URL for each of its equal instances. Required. The URLs are stored with \
         sessions and written to the log, so they hold no secrets; write them alike at every gateway.",
    ),
    shape: "http or https URLs of at most 128 bytes, without credentials and without a fragment, such as \
            http://127.0.0.1:9001/mcp",
    items_max: 1024,
    item_bytes_max: 512,
    disclosure: Disclosure::Credentials,
};

pub(super) const AFFINITY: Choice<ServerAffinity> = Choice {
    about: About::new(
        "servers.affinity",
        "Whether this server's sessions keep their instance.",
    ),
    default: Named {
        name: "inherit",
        value: ServerAffinity::Inherit,
        meaning: "as `affinity.enabled` says",
    },
    others: &[
        Named {
            name: "on",
            value: ServerAffinity::On,
            meaning: "yes",
        },
        Named {
            name: "off",
            value: ServerAffinity::Off,
            meaning: "no: any call may go to any instance",
        },
    ],
    later: &[],
};

pub(super) const CONCURRENCY: Choice<Concurrency> = Choice {
    about: About::new(
        "servers.concurrency",
        "Whether tool calls of one session may run at the same time. Checked and without effect in this \
         version, which lets them run.",
    ),
    default: Named {
        name: "serial",
        value: Concurrency::Serial,
        meaning: "one after another, in the order of arrival",
    },
    others: &[Named {
        name: "parallel",
        value: Concurrency::Parallel,
        meaning: "side by side",
    }],
    later: &[],
};

pub(super) const ON_UPSTREAM_LOSS: Choice<OnUpstreamLoss> = Choice {
    about: About::new(
        "servers.on_upstream_loss",
        "What happens to a session whose instance was lost.",
    ),
    default: Named {
        name: "reinitialize",
        value: OnUpstreamLoss::Reinitialize,
        meaning: "a new upstream session on another instance, and the client is told that state was lost",
    },
    others: &[Named {
        name: "fail",
        value: OnUpstreamLoss::Fail,
        meaning: "404, so that the client initializes again",
    }],
    later: &[],
};

/// The fields of one `[[servers]]` table.
pub(super) const KNOBS: &[Knob] = &[
    Knob::Text(&ID),
    Knob::Choice(&KIND),
    Knob::List(&INSTANCES),
    Knob::Choice(&AFFINITY),
    Knob::Choice(&CONCURRENCY),
    Knob::Choice(&ON_UPSTREAM_LOSS),
    Knob::Map(&headers::HEADERS),
];

pub(super) const DEFAULT_SERVER: Text = Text {
    about: About::new("default.server", "The server that `/mcp` means.")
        .unset("the only server where there is just one; with several, `/mcp` answers 404"),
    default: None,
    shape: "the id of a configured server",
    bytes_max: 60,
    disclosure: Disclosure::Open,
};

/// The rows of `[default]`.
pub(super) const DEFAULT_KNOBS: &[Knob] = &[Knob::Text(&DEFAULT_SERVER)];

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

/// What a server is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerKind {
    /// MCP over Streamable HTTP.
    Http,
}

/// The words of `servers.affinity`, before the global switch is applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ServerAffinity {
    Inherit,
    On,
    Off,
}

/// Whether tool calls of one session may run at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Concurrency {
    /// One after another.
    Serial,
    /// Side by side.
    Parallel,
}

/// What happens to a session whose instance was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnUpstreamLoss {
    /// A new upstream session elsewhere, visibly.
    Reinitialize,
    /// 404 to the client.
    Fail,
}

/// One upstream MCP server.
#[derive(Debug, Clone)]
pub struct ServerSettings {
    /// Its name.
    pub id: ServerId,
    /// What it is.
    pub kind: ServerKind,
    /// Where it runs: 1 to 1024 distinct instances, in the order written.
    pub instances: Vec<Instance>,
    /// Whether its sessions keep their instance; the global switch is already applied.
    pub affinity: Affinity,
    /// Whether tool calls of one session may run at the same time.
    pub concurrency: Concurrency,
    /// What happens to a session whose instance was lost.
    pub on_upstream_loss: OnUpstreamLoss,
    /// Headers that every request to it carries.
    pub headers: UpstreamHeaders,
}

/// Parses every server of the file and of the flags.
pub(super) fn parse(
    file: &FileTables,
    flags: &Flags,
    environment: &Environment,
    standard: Affinity,
    errors: &mut SettingsError,
) -> Vec<ServerSettings> {
    let mut servers: Vec<ServerSettings> = Vec::new();
    for entry in entry::collect(file, &flags.servers, errors) {
        let Some(server) = parse_one(&entry, environment, standard, errors) else {
            continue;
        };
        if servers.iter().any(|other| other.id == server.id) {
            Reader::new(&entry, errors).refuse(
                &ID.about,
                format!("{:?}", server.id.as_str()),
                "another server has this id".to_owned(),
                "an id of its own for every server".to_owned(),
            );
        } else {
            servers.push(server);
        }
    }
    servers
}

/// `None` where the server has no usable id, which was noted.
fn parse_one(
    entry: &entry::ServerEntry<'_>,
    environment: &Environment,
    standard: Affinity,
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
    let instances = instance::parse_all(&mut reader, entry.has_a_later_kind());
    let affinity = match reader.choice(&AFFINITY) {
        ServerAffinity::Inherit => standard,
        ServerAffinity::On => Affinity::Kept,
        ServerAffinity::Off => Affinity::Off,
    };
    let concurrency = reader.choice(&CONCURRENCY);
    let on_upstream_loss = reader.choice(&ON_UPSTREAM_LOSS);
    let headers = headers::parse(&mut reader, environment);
    Some(ServerSettings {
        id: id?,
        kind,
        instances,
        affinity,
        concurrency,
        on_upstream_loss,
        headers,
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
        let allowed = match super::knob::quoted(ids.iter().copied()) {
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
