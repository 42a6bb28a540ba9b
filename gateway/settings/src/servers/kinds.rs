//! The kinds of servers, and which fields each of them has. A field that a server's kind does not have is refused,
//! because it would have no effect.

use super::agent::{self, AgentServerSettings, OutputRules};
use super::group::GroupServerSettings;
use super::http::{self, HttpServerSettings};
use super::oauth::OauthRows;
use super::session_policy;
use super::stdio::{self, StdioServerSettings, command, variables};
use super::vault::VaultRows;
use crate::access;
use crate::code::{self, TAG_BYTES_MAX, TAGS_MAX};
use crate::reader::Reader;
use crate::rows::{settings, words};
use crate::setting::{self, Group, Row, Setting, SettingInfo, Words, quoted};

pub(super) const HTTP: &str = "http";
pub(super) const CODE: &str = "code";
pub(super) const STDIO: &str = "stdio";
pub(super) const SSE: &str = "sse";
pub(super) const GROUP: &str = "group";
pub(super) const AGENT: &str = "agent";
pub(super) const ADMIN: &str = "admin";

words! {
    /// The words of `servers.kind`.
    pub(super) enum Kind {
        /// MCP over Streamable HTTP, at one or more instances
        Http = "http",
        /// the gateway itself: it runs code in a sandbox and keeps its files
        Code = "code" or "code_execution",
        /// a program that the gateway starts, once for each session, and speaks to over its standard input and output
        Stdio = "stdio",
        /// MCP over HTTP+SSE of 2024-11-05, at one or more instances
        Sse = "sse",
        /// several of the other servers behind one endpoint
        Group = "group",
        /// a command-line agent that the gateway runs once for each call; a call can resume the conversation of an
        /// earlier one
        Agent = "agent",
        /// what operators see of the fleet and do with it, as tools for their agents
        Admin = "admin",
    }
}

settings! {
    /// The fields that every server has.
    pub(super) const COMMON_ROWS {
        /// The server's name, as in `/servers/<id>/mcp`. Required.
        ID = Text("servers.id", 60,
            "1 to 60 characters out of letters, digits and . _ -, the first a letter or a digit, without \"__\"", None,
        ),
        /// What the server is and how it is reached.
        KIND = Choice("servers.kind", setting::words::<Kind>).aliases(&["type", "server_type"]),
        /// Tags of the server, which its tools inherit. The `mount_rules` of servers of kind `code` select by them.
        TAGS = List("servers.tags", TAGS_MAX, TAG_BYTES_MAX,
            "words of at most 64 bytes without spaces, commas and control characters").unset("none"),
    }
}

/// The fields of one `[[servers]]` table, by the kinds that have them; the first are those of every kind.
pub(crate) const FIELDS: &[Group] = &[
    (&[], &[COMMON_ROWS, access::SERVER_ROWS]),
    (&[HTTP, SSE], &[HttpServerSettings::ROWS]),
    (
        &[HTTP],
        &[http::IDENTITY_ROWS, OauthRows::ROWS, VaultRows::ROWS],
    ),
    (&[HTTP, STDIO, SSE], &[session_policy::ROWS]),
    (
        &[STDIO, AGENT],
        &[command::ROWS, variables::ROWS, stdio::PROGRAM_ROWS],
    ),
    (&[STDIO], &[StdioServerSettings::ROWS]),
    (&[GROUP], &[GroupServerSettings::ROWS]),
    (
        &[AGENT],
        &[agent::ROWS, OutputRules::ROWS, AgentServerSettings::ROWS],
    ),
    (&[CODE], &code::SERVER_ROWS),
];

/// Every field of one `[[servers]]` table.
pub(super) fn fields() -> impl Iterator<Item = &'static Setting> {
    let groups = FIELDS.iter().flat_map(|(_, groups)| *groups);
    groups.copied().flatten()
}

/// The kinds that have this field; none where every kind has it.
pub(crate) fn kinds_with(about: &SettingInfo) -> &'static [&'static str] {
    let has_it = |rows: &&[Setting]| rows.iter().any(|row| row.about().key == about.key);
    let mut groups = FIELDS.iter();
    let group = groups.find(|(_, groups)| groups.iter().any(has_it));
    group.map_or(&[], |(kinds, _)| kinds)
}

/// Refuses fields that only servers of other kinds have.
pub(super) fn refuse_foreign_fields(reader: &mut Reader<'_>, kind: Kind) {
    for setting in fields() {
        let kinds = kinds_with(setting.about());
        let has_it = kinds.iter().any(|word| Kind::of_word(word) == Some(kind));
        if kinds.is_empty() || has_it || !reader.is_written(setting) {
            continue;
        }
        let kinds = quoted(kinds.iter().copied());
        reader.refuse(
            setting,
            "",
            format!("only a server of kind {kinds} has this field"),
            format!("nothing, or kind = {kinds}"),
        );
    }
}
