//! `[[servers]]` and `[default]`: the MCP servers, and which of them `/mcp` means. Ids are unique, and no server has
//! a field of another kind.

mod agent;
mod entry;
mod group;
mod headers;
mod http;
mod instance;
mod kinds;
mod members;
mod oauth;
mod server;
mod server_id;
mod session_policy;
mod stdio;
mod vault;

use entry::ServerEntry;
use kinds::{ID, KIND, Kind, TAGS};

use super::access;
use super::affinity::Affinity;
use super::code::{CodeSection, CodeServerSettings, parse_tag};
use super::file::FileTables;
use super::paths::{ABSOLUTE_DIRECTORY, PATH_BYTES_MAX};
use super::problem::SettingsError;
use super::reader::Reader;
use super::rows::settings;
use super::setting::quoted;
use super::source::{Environment, Flags};

pub use agent::{
    AgentServerSettings, CommandTemplate, Condition, OutputForm, OutputRules, Pointer, Results,
    TemplateError,
};
pub(super) use entry::SERVERS_MAX;
pub use group::{GroupNames, GroupServerSettings};
pub use headers::UpstreamHeaders;
pub(super) use headers::parse as parse_headers;
pub use http::{EraChoice, HttpServerSettings};
pub use instance::Instance;
pub(super) use kinds::{FIELDS, kinds_with};
pub use oauth::{ClientAuthentication, OauthSettings, TokenGrant};
pub use server::{ServerKind, ServerSettings};
pub use server_id::ServerId;
pub use session_policy::{Concurrency, Continuity, LostStateNotice, OnUpstreamLoss};
pub use stdio::{ChildVariables, CommandLine, INHERITED_DEFAULT, StdioServerSettings};
pub use vault::UserSecretSettings;

settings! {
    /// The rows of `[default]`.
    pub(super) const DEFAULT_ROWS {
        /// The server that `/mcp` means.
        DEFAULT_SERVER = Text("default.server", 60, "the id of a configured server", None)
            .unset("the only server where there is just one that is not of kind `admin`; otherwise `/mcp` answers 404"),
        /// A directory of further servers: every file whose name ends with `.toml` has `[[servers]]` tables, or the
        /// fields of one server. They are read in the order of their names, and a reload reads them again. An id may be
        /// in one place only.
        SERVERS_DIR = Text("default.servers_dir", PATH_BYTES_MAX, ABSOLUTE_DIRECTORY, None)
            .unset("`servers.d` beside the settings file, if it is there"),
    }
}

/// Parses every server of the file and of the flags. If there is none at all, returns the default one.
pub(super) fn parse(
    files: &[&FileTables],
    flags: &Flags,
    environment: &Environment,
    affinity: Affinity,
    code: &CodeSection,
    errors: &mut SettingsError,
) -> Vec<ServerSettings> {
    let entries = entry::collect(files, flags, environment, errors);
    let mut servers: Vec<(ServerSettings, ServerEntry<'_>)> = Vec::new();
    if entries.iter().all(ServerEntry::is_added) && code.settings.is_enabled {
        let unwritten = ServerEntry::unwritten();
        let mut reader = Reader::new(&unwritten, environment, errors);
        let standard = ServerSettings {
            id: ServerId::standard(),
            kind: ServerKind::Code(CodeServerSettings::read(&mut reader, code)),
            tags: Vec::new(),
            allow: None,
        };
        servers.push((standard, unwritten));
    }
    for entry in entries {
        let mut reader = Reader::new(&entry, environment, errors);
        let Some(server) = parse_one(&mut reader, entry.has_a_refused_kind(), affinity, code)
        else {
            continue;
        };
        let other = servers.iter().find(|(other, _)| other.id == server.id);
        if let Some((_, other)) = other {
            let reason = match other.place() {
                Some(place) => format!("another server has this id: {place}"),
                None => "another server has this id".to_owned(),
            };
            let id = format!("{:?}", server.id.as_str());
            reader.refuse(&ID, id, reason, "an id of its own for every server");
        } else {
            servers.push((server, entry));
        }
    }
    members::refuse_bad_members(&servers, environment, errors);
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
        Kind::Admin => ServerKind::Admin,
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
        // A fleet of one server stays one when its operators' agents get theirs.
        let mut named = servers.iter().filter(|one| one.kind != ServerKind::Admin);
        return match (named.next(), named.next()) {
            (Some(only), None) => Some(only.id.clone()),
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
