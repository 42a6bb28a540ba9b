//! A server of kind `group`: several of the other servers behind one endpoint. A member is there, is neither a group nor
//! an agent, and stands in the list once, so that a request ends at a server in one step.

use super::entry::ServerEntry;
use super::{ID, ServerId, ServerKind, ServerSettings};
use crate::problem::SettingsError;
use crate::reader::Reader;
use crate::rows::settings;
use crate::setting::quoted;
use crate::source::Environment;

/// Most members of one group: a session opens a connection to each of them.
const MEMBERS_MAX: usize = 32;

settings! {
    /// One server of kind `group`; [`refuse_bad_members`] holds its members against the other servers.
    #[derive(PartialEq, Eq)]
    pub struct GroupServerSettings {
        /// The ids of the servers that the group consists of, in the order in which their tools are listed. Required
        /// for the kind `group`. They stay reachable by themselves. A session of the group is kept at every member that
        /// it uses, also at one of kind `http` whose own `affinity` is off.
        pub members: Vec<ServerId> = List("servers.members", MEMBERS_MAX, 60,
            "ids of configured servers that are neither groups nor of kind `agent`, each once") => |reader, row| reader.distinct(row, ServerId::parse, "the group has no member", "this member"),
        /// Whether the names of the members' tools and prompts are unique, so that the group leaves them unchanged. If
        /// two names are equal, the first member's wins, with a log line. Otherwise each name is prefixed with its
        /// server: `<server>__<tool>`.
        pub names: GroupNames = Switch("servers.unique_names", false)
            => |reader, row| match reader.read(row) {
                true => GroupNames::Unchanged,
                false => GroupNames::Prefixed,
            },
    }
}

/// How a group names what its members offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupNames {
    /// `<server>__<tool>`.
    Prefixed,
    /// As the member names it; of two equal names the first member's wins.
    Unchanged,
}

/// Refuses members that are not there, and groups and agents in groups.
pub(super) fn refuse_bad_members(
    servers: &[(ServerSettings, ServerEntry<'_>)],
    environment: &Environment,
    errors: &mut SettingsError,
) {
    for (server, entry) in servers {
        if let ServerKind::Group(group) = &server.kind {
            let mut reader = Reader::new(entry, environment, errors);
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
    let reason = match found.map(|(server, _)| &server.kind) {
        _ if member == group => "this is the group itself".to_owned(),
        Some(ServerKind::Group(_)) => {
            "this is a group, and a group's members are servers".to_owned()
        }
        Some(ServerKind::Agent(_)) => {
            "this is of kind agent, whose conversations are not those of an MCP session".to_owned()
        }
        Some(_) => return,
        // With a server refused, the id may well be the one that is missing.
        None if reader.was_refused(&ID) => return,
        None => {
            let others = servers.iter().map(|(server, _)| server).filter(|server| {
                let is_server = !matches!(server.kind, ServerKind::Group(_) | ServerKind::Agent(_));
                is_server && server.id != *group
            });
            match quoted(others.map(|server| server.id.as_str())) {
                none if none.is_empty() => {
                    "there is no server of this id, and no other that could be a member".to_owned()
                }
                known => format!("there is no server of this id; there are {known}"),
            }
        }
    };
    let row = &GroupServerSettings::members;
    reader.refuse(row, format!("{:?}", member.as_str()), reason, row.allowed());
}
