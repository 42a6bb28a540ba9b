//! A server of kind `group`: several of the other servers behind one endpoint. A member is there, is neither a group nor
//! an agent, and stands in the list once, so that a request ends at a server in one step.

use super::super::problem::SettingsError;
use super::super::reader::Reader;
use super::super::setting::{Disclosure, List, Setting, SettingInfo, Switch, quoted};
use super::entry::ServerEntry;
use super::{ID, ServerId, ServerKind, ServerSettings};

/// Most members of one group: a session opens a connection to each of them.
const MEMBERS_MAX: usize = 32;

const MEMBERS: List = List {
    about: SettingInfo::new(
        "servers.members",
        "The ids of the servers that the group consists of, in the order in which their tools are listed. Required for \
         the kind `group`. They stay reachable by themselves. A session of the group is kept at every member that it \
         uses, also at one of kind `http` whose own `affinity` is off.",
    ),
    shape: "ids of configured servers that are neither groups nor of kind `agent`, each once",
    items_max: MEMBERS_MAX,
    item_bytes_max: 60,
    disclosure: Disclosure::Open,
};

const UNIQUE_NAMES: Switch = Switch {
    about: SettingInfo::new(
        "servers.unique_names",
        "Whether the members' tools and prompts have names of their own, which the group then leaves as they are. Of \
         two equal names the first member's wins, and a log line says so. Otherwise each is prefixed with its \
         server: `<server>__<tool>`.",
    ),
    default: false,
};

/// The fields of a server of kind `group`.
pub(super) const SETTINGS: &[Setting] = &[Setting::List(&MEMBERS), Setting::Switch(&UNIQUE_NAMES)];

/// How a group names what its members offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupNames {
    /// `<server>__<tool>`.
    Prefixed,
    /// As the member names it; of two equal names the first member's wins.
    Unchanged,
}

/// One server of kind `group`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupServerSettings {
    /// 1 to 32 distinct ids of configured servers, neither groups nor agents, in the order written.
    pub members: Vec<ServerId>,
    /// How it names what they offer.
    pub names: GroupNames,
}

/// What a group says by itself; [`refuse_bad_members`] holds it against the other servers.
pub(super) fn parse(reader: &mut Reader<'_>) -> GroupServerSettings {
    let written = reader.list(&MEMBERS, ServerId::parse);
    match &written {
        None if !reader.is_written(&MEMBERS.about) => {
            refuse(reader, String::new(), "it is missing".to_owned());
        }
        Some(members) if members.is_empty() && !reader.was_refused(&MEMBERS.about) => {
            refuse(
                reader,
                "[]".to_owned(),
                "the group has no member".to_owned(),
            );
        }
        _ => {}
    }
    let mut members: Vec<ServerId> = Vec::new();
    for member in written.unwrap_or_default() {
        if members.contains(&member) {
            let reason = "this member stands there twice".to_owned();
            refuse(reader, format!("{:?}", member.as_str()), reason);
        } else {
            members.push(member);
        }
    }
    let names = if reader.switch(&UNIQUE_NAMES) {
        GroupNames::Unchanged
    } else {
        GroupNames::Prefixed
    };
    GroupServerSettings { members, names }
}

/// Refuses members that are not there, and groups and agents in groups.
pub(super) fn refuse_bad_members(
    servers: &[(ServerSettings, ServerEntry<'_>)],
    errors: &mut SettingsError,
) {
    for (server, entry) in servers {
        if let ServerKind::Group(group) = &server.kind {
            let mut reader = Reader::new(entry, errors);
            for member in &group.members {
                refuse_bad_member(&mut reader, &server.id, member, servers);
            }
        }
    }
}

fn refuse_bad_member(
    reader: &mut Reader<'_>,
    group: &ServerId,
    member: &ServerId,
    servers: &[(ServerSettings, ServerEntry<'_>)],
) {
    let found = servers.iter().find(|(server, _)| server.id == *member);
    let value = format!("{:?}", member.as_str());
    match found {
        _ if member == group => refuse(reader, value, "this is the group itself".to_owned()),
        Some((server, _)) if matches!(server.kind, ServerKind::Group(_)) => {
            let reason = "this is a group, and a group's members are servers".to_owned();
            refuse(reader, value, reason);
        }
        Some((server, _)) if matches!(server.kind, ServerKind::Agent(_)) => {
            let reason =
                "this is of kind agent, whose conversations are not those of an MCP session"
                    .to_owned();
            refuse(reader, value, reason);
        }
        Some(_) => {}
        // With a server refused, the id may well be the one that is missing.
        None if reader.was_refused(&ID.about) => {}
        None => {
            let others = servers.iter().filter(|(server, _)| {
                let can_be_member =
                    !matches!(server.kind, ServerKind::Group(_) | ServerKind::Agent(_));
                server.id != *group && can_be_member
            });
            let known = quoted(others.map(|(server, _)| server.id.as_str()));
            let reason = if known.is_empty() {
                "there is no server of this id, and no other that could be a member".to_owned()
            } else {
                format!("there is no server of this id; there are {known}")
            };
            refuse(reader, value, reason);
        }
    }
}

fn refuse(reader: &mut Reader<'_>, value: String, reason: String) {
    reader.refuse(&MEMBERS.about, value, reason, MEMBERS.allowed());
}
