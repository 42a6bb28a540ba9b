//! A server of kind `group`: several of the other servers behind one endpoint. A member is there, is no group, no agent
//! and no server for operators, and stands in the list once, so that a request ends at a server in one step.

use super::server_id::ServerId;
use crate::rows::settings;

/// Most members of one group: a session opens a connection to each of them.
const MEMBERS_MAX: usize = 32;

settings! {
    /// One server of kind `group`; its members are compared with the other servers in `members.rs`.
    #[derive(Eq)]
    pub struct GroupServerSettings {
        /// The ids of the servers that the group consists of, in the order in which their tools are listed. Required
        /// for the kind `group`. They stay reachable by themselves. A session of the group is kept at every member that
        /// it uses, also at one of kind `http` whose own `affinity` is off.
        pub members: Vec<ServerId> = List("servers.members", MEMBERS_MAX, 60,
            "ids of configured servers that are neither groups nor of kind `agent` or `admin`, each once") => |reader, row| reader.distinct(row, ServerId::parse, "the group has no member", "this member"),
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
