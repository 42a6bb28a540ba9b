//! `[[servers]]` and `[default]`: the MCP servers, and which of them `/mcp` means. Ids are unique, and no server has
//! a field of another kind.

mod agent;
mod entry;
mod group;
mod headers;
mod http;
mod instance;
mod kinds;
mod oauth;
mod session_policy;
mod stdio;
mod vault;

use std::fmt;

use entry::ServerEntry;
use kinds::Kind;

use super::access::{self, AccessRule};
use super::affinity::Affinity;
use super::code::{CodeSection, CodeServerSettings, TAG_BYTES_MAX, TAGS_MAX, parse_tag};
use super::file::FileTables;
use super::problem::SettingsError;
use super::reader::{Reader, Reason};
use super::rows::settings;
use super::setting::{quoted, words};
use super::source::{Environment, Flags};

pub use agent::{
    AgentServerSettings, CommandTemplate, Condition, ConditionError, OutputForm, OutputRules,
    Pointer, PointerError, Results, TemplateError,
};
pub use group::{GroupNames, GroupServerSettings};
pub use headers::UpstreamHeaders;
pub(super) use headers::parse as parse_headers;
pub use http::HttpServerSettings;
pub use instance::Instance;
pub(super) use kinds::{FIELDS, kinds_with};
pub use oauth::{ClientAuthentication, OauthSettings, TokenGrant};
pub use session_policy::{Concurrency, LostStateNotice, OnUpstreamLoss};
pub use stdio::{ChildVariables, CommandLine, INHERITED_DEFAULT, StdioServerSettings};
pub use vault::UserSecretSettings;

/// Most servers of one gateway.
pub(super) const SERVERS_MAX: usize = 256;

/// The id of the default server, which exists if no server is configured.
const STANDARD_ID: &str = "sandbox";

settings! {
    /// The fields that every server has.
    const COMMON_ROWS {
        /// The server's name, as in `/servers/<id>/mcp`. Required.
        ID = Text("servers.id", 60,
            "1 to 60 characters out of letters, digits and . _ -, the first a letter or a digit, without \"__\"", None,
        ),
        /// What the server is and how it is reached.
        KIND = Choice("servers.kind", words::<Kind>).aliases(&["type", "server_type"]),
        /// Tags of the server, which its tools inherit. The `mount_rules` of servers of kind `code` select by them.
        TAGS = List("servers.tags", TAGS_MAX, TAG_BYTES_MAX,
            "words of at most 64 bytes without spaces, commas and control characters").unset("none"),
    }
}

settings! {
    /// The rows of `[default]`.
    pub(super) const DEFAULT_ROWS {
        /// The server that `/mcp` means.
        DEFAULT_SERVER = Text("default.server", 60, "the id of a configured server", None)
            .unset("the only server where there is just one; with several, `/mcp` answers 404"),
    }
}

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
    Sse(HttpServerSettings),
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
    /// Who may use it; none where it has no rules of its own.
    pub allow: Option<Vec<AccessRule>>,
}

impl ServerSettings {
    /// Whether the server gets signed tokens with the caller's identity.
    pub fn forwards_identity(&self) -> bool {
        matches!(&self.kind, ServerKind::Http(http) if http.forward_identity)
    }

    /// How the tokens of requests to the server are fetched; none if none are needed.
    pub fn oauth(&self) -> Option<&OauthSettings> {
        match &self.kind {
            ServerKind::Http(http) => http.oauth.as_ref(),
            _ => None,
        }
    }

    /// How requests to the server have the secrets of their users; none where users store none.
    pub fn user_secret(&self) -> Option<&UserSecretSettings> {
        match &self.kind {
            ServerKind::Http(http) => http.user_secret.as_ref(),
            _ => None,
        }
    }

    /// Whether the server gets tokens in exchange for those of its callers.
    pub fn exchanges_tokens(&self) -> bool {
        self.oauth()
            .is_some_and(|oauth| oauth.grant == TokenGrant::TokenExchange)
    }
}

/// Parses every server of the file and of the flags. If there is none at all, returns the default one.
pub(super) fn parse(
    file: &FileTables,
    flags: &Flags,
    environment: &Environment,
    affinity: Affinity,
    code: &CodeSection,
    errors: &mut SettingsError,
) -> Vec<ServerSettings> {
    let entries = entry::collect(file, flags, environment, errors);
    if entries.is_empty() && code.settings.is_enabled {
        let unwritten = ServerEntry::unwritten(file);
        let mut reader = Reader::new(&unwritten, environment, errors);
        return vec![ServerSettings {
            id: ServerId(STANDARD_ID.to_owned()),
            kind: ServerKind::Code(CodeServerSettings::read(&mut reader, code)),
            tags: Vec::new(),
            allow: None,
        }];
    }
    let mut servers: Vec<(ServerSettings, ServerEntry<'_>)> = Vec::new();
    for entry in entries {
        let mut reader = Reader::new(&entry, environment, errors);
        let Some(server) = parse_one(&mut reader, entry.has_a_refused_kind(), affinity, code)
        else {
            continue;
        };
        if servers.iter().any(|(other, _)| other.id == server.id) {
            reader.refuse(
                &ID,
                format!("{:?}", server.id.as_str()),
                "another server has this id",
                "an id of its own for every server",
            );
        } else {
            servers.push((server, entry));
        }
    }
    group::refuse_bad_members(&servers, environment, errors);
    servers.into_iter().map(|(server, _)| server).collect()
}

/// Leaves out the servers of kind `code`, also as members, and groups that have no other. Returns what was left out, as a
/// sentence.
pub(super) fn leave_out_code(servers: &mut Vec<ServerSettings>) -> Option<String> {
    let mut left_out: Vec<ServerId> = Vec::new();
    servers.retain(|server| {
        let is_code = matches!(server.kind, ServerKind::Code(_));
        if is_code {
            left_out.push(server.id.clone());
        }
        !is_code
    });
    servers.retain_mut(|server| {
        let ServerKind::Group(group) = &mut server.kind else {
            return true;
        };
        group.members.retain(|member| !left_out.contains(member));
        if group.members.is_empty() {
            left_out.push(server.id.clone());
        }
        !group.members.is_empty()
    });
    let ids: Vec<&str> = left_out.iter().map(ServerId::as_str).collect();
    (!ids.is_empty()).then(|| format!("code.enabled is false: not served: {}", ids.join(", ")))
}

/// `None` where the server has no usable id, which was noted.
fn parse_one(
    reader: &mut Reader<'_>,
    kind_is_refused: bool,
    affinity: Affinity,
    code: &CodeSection,
) -> Option<ServerSettings> {
    let id = reader.text(&ID, ServerId::parse);
    if !reader.is_written(&ID) {
        reader.refuse(&ID, "", "it is missing", ID.shape);
    }
    let kind = reader.read(&KIND);
    if !kind_is_refused {
        kinds::refuse_foreign_fields(reader, kind);
    }
    let kind = match kind {
        Kind::Http => {
            let affinity = session_policy::parse_affinity(reader, affinity);
            ServerKind::Http(HttpServerSettings::read(reader, affinity, kind_is_refused))
        }
        Kind::Sse => {
            let affinity = session_policy::require_affinity(reader, kinds::SSE);
            ServerKind::Sse(HttpServerSettings::read(reader, affinity, false))
        }
        Kind::Code => ServerKind::Code(CodeServerSettings::read(reader, code)),
        Kind::Stdio => {
            session_policy::require_affinity(reader, kinds::STDIO);
            ServerKind::Stdio(StdioServerSettings::read(reader))
        }
        Kind::Group => ServerKind::Group(GroupServerSettings::read(reader)),
        Kind::Agent => ServerKind::Agent(agent::parse(reader)),
    };
    let tags = reader.list(&TAGS, parse_tag).unwrap_or_default();
    Some(ServerSettings {
        id: id?,
        kind,
        tags,
        allow: access::parse_rules(reader),
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
    if !known && !reader.was_refused(&ID) {
        let allowed = match quoted(servers.iter().map(|server| server.id.as_str())) {
            none if none.is_empty() => "nothing, as long as no server is configured".to_owned(),
            ids => ids,
        };
        reader.refuse(
            &DEFAULT_SERVER,
            format!("{:?}", id.as_str()),
            "there is no server of this id",
            allowed,
        );
    }
    Some(id)
}
