//! Compares the members of groups with the servers that there are.

use super::entry::ServerEntry;
use super::group::GroupServerSettings;
use super::kinds::ID;
use super::server::{ServerKind, ServerSettings};
use super::server_id::ServerId;
use crate::problem::SettingsError;
use crate::reader::Reader;
use crate::setting::quoted;
use crate::source::Environment;

/// Refuses members that are not there, and groups, agents and operators' tools in groups.
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
        Some(ServerKind::Admin) => {
            "this is of kind admin, whose tools are for operators and stay apart from those of users".to_owned()
        }
        Some(_) => return,
        // With a server refused, the id may well be the one that is missing.
        None if reader.was_refused(&ID) => return,
        None => {
            let others = servers.iter().map(|(server, _)| server).filter(|server| {
                let is_server = !matches!(
                    server.kind,
                    ServerKind::Group(_) | ServerKind::Agent(_) | ServerKind::Admin
                );
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
