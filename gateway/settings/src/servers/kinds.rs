//! The kinds of servers, and which fields each of them has. A field that a server's kind does not have is refused: it
//! would be a wish that nobody hears.

use super::super::code;
use super::super::reader::Reader;
use super::super::setting::{Choice, ChoiceOption, Setting, SettingInfo, quoted};
use super::{COMMON_SETTINGS, agent, group, headers, instance, kept, stdio};

pub(super) const HTTP: &str = "http";
pub(super) const CODE: &str = "code";
pub(super) const STDIO: &str = "stdio";
pub(super) const SSE: &str = "sse";
pub(super) const GROUP: &str = "group";
pub(super) const AGENT: &str = "agent";

pub(super) const KIND: Choice<Kind> = Choice {
    about: SettingInfo::new("servers.kind", "What the server is and how it is reached.")
        .aliases(&["type", "server_type"]),
    default: ChoiceOption {
        name: HTTP,
        value: Kind::Http,
        meaning: "MCP over Streamable HTTP, at one or more instances",
    },
    others: &[
        ChoiceOption {
            name: CODE,
            value: Kind::Code,
            meaning: "the gateway itself: it runs code in a sandbox and keeps its files",
        },
        ChoiceOption {
            name: "code_execution",
            value: Kind::Code,
            meaning: "the same as `code`",
        },
        ChoiceOption {
            name: STDIO,
            value: Kind::Stdio,
            meaning: "a program that the gateway starts, once for each session, and speaks to over its standard input \
                      and output",
        },
        ChoiceOption {
            name: SSE,
            value: Kind::Sse,
            meaning: "MCP over HTTP+SSE of 2024-11-05, at one or more instances",
        },
        ChoiceOption {
            name: GROUP,
            value: Kind::Group,
            meaning: "several of the other servers behind one endpoint",
        },
        ChoiceOption {
            name: AGENT,
            value: Kind::Agent,
            meaning: "a command-line agent that the gateway runs once for each call; a call can take up the conversation \
                      of an earlier one",
        },
    ],
    later: &[],
};

/// The words of `servers.kind`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Http,
    Code,
    Stdio,
    Sse,
    Group,
    Agent,
}

impl Kind {
    /// Its word, never an alias.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Http => HTTP,
            Self::Code => CODE,
            Self::Stdio => STDIO,
            Self::Sse => SSE,
            Self::Group => GROUP,
            Self::Agent => AGENT,
        }
    }
}

/// The fields of one `[[servers]]` table, by the kinds that have them.
pub(crate) const SETTINGS: &[&[Setting]] = &{
    let [own, limits, calls, network, trees, mounts, tokens, skills] = *code::SERVER_SETTINGS;
    [
        COMMON_SETTINGS,
        instance::SETTINGS,
        kept::SETTINGS,
        headers::SETTINGS,
        stdio::PROGRAM_SETTINGS,
        stdio::SETTINGS,
        group::SETTINGS,
        agent::SETTINGS,
        own,
        limits,
        calls,
        network,
        trees,
        mounts,
        tokens,
        skills,
    ]
};

/// What each kind has beyond the fields of all.
const FIELDS: [(&str, &[&[Setting]]); 6] = [
    (
        HTTP,
        &[instance::SETTINGS, kept::SETTINGS, headers::SETTINGS],
    ),
    (CODE, code::SERVER_SETTINGS),
    (
        STDIO,
        &[kept::SETTINGS, stdio::PROGRAM_SETTINGS, stdio::SETTINGS],
    ),
    (
        SSE,
        &[instance::SETTINGS, kept::SETTINGS, headers::SETTINGS],
    ),
    (GROUP, &[group::SETTINGS]),
    (AGENT, &[stdio::PROGRAM_SETTINGS, agent::SETTINGS]),
];

/// The kinds that have this field; none where every kind has it.
pub(crate) fn kinds_with(about: &SettingInfo) -> Vec<&'static str> {
    FIELDS
        .iter()
        .filter(|(_, groups)| {
            let mut settings = groups.iter().copied().flatten();
            settings.any(|setting| setting.about().key == about.key)
        })
        .map(|(kind, _)| *kind)
        .collect()
}

/// Refuses fields that only servers of other kinds have.
pub(super) fn refuse_foreign_fields(reader: &mut Reader<'_>, kind: &str) {
    for setting in SETTINGS.iter().copied().flatten() {
        let about = setting.about();
        let kinds = kinds_with(about);
        if kinds.is_empty() || kinds.contains(&kind) || !reader.is_written(about) {
            continue;
        }
        let kinds = quoted(kinds.into_iter());
        reader.refuse(
            about,
            String::new(),
            format!("only a server of kind {kinds} has this field"),
            format!("nothing, or kind = {kinds}"),
        );
    }
}
