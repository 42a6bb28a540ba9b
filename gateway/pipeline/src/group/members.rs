//! Groups and their members, as the settings have them.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use mooring_session::names::{NameError, ServerName};

use super::directory::MemberDirectory;
use super::known::KnownMembers;
use super::names;
use crate::request::RequestServer;
use mooring_code::server::{CodeServer, CodeServers};
use mooring_settings::{GroupNames, ServerKind, ServerSettings};
use mooring_upstream::{Readiness, Server, Servers};

/// Most parts of a group that are remembered with their directories; a fleet has few kinds of callers.
const PARTS_MAX: usize = 256;

/// A member of a group.
#[derive(Clone, Debug)]
pub enum Member {
    /// A remote MCP server, or one that a gateway starts.
    Upstream(Arc<Server>),
    /// A code server of this gateway.
    Code(Arc<CodeServer>),
}

impl RequestServer for Member {
    fn id(&self) -> &ServerName {
        match self {
            Self::Upstream(server) => &server.id,
            Self::Code(server) => &server.id,
        }
    }
}

impl Member {
    /// Whether it is the same server, not only one of the same id.
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Upstream(one), Self::Upstream(other)) => Arc::ptr_eq(one, other),
            (Self::Code(one), Self::Code(other)) => Arc::ptr_eq(one, other),
            (Self::Upstream(_), Self::Code(_)) | (Self::Code(_), Self::Upstream(_)) => false,
        }
    }

    /// The server of an upstream member.
    pub(crate) const fn upstream(&self) -> Option<&Arc<Server>> {
        match self {
            Self::Upstream(server) => Some(server),
            Self::Code(_) => None,
        }
    }
}

/// Several servers behind one endpoint.
#[derive(Debug)]
pub struct Group {
    /// Its id in paths.
    pub id: ServerName,
    pub(super) members: Vec<Member>,
    pub(super) names: GroupNames,
    pub(super) directory: MemberDirectory,
    pub(super) known: Arc<KnownMembers>,
    /// The group for callers that may use only these members.
    parts: Mutex<HashMap<Vec<bool>, Arc<Group>>>,
}

impl Group {
    /// A group of these members, which are distinct, in their order.
    fn new(
        id: ServerName,
        members: Vec<Member>,
        names: GroupNames,
        known: Arc<KnownMembers>,
    ) -> Self {
        Self {
            id,
            members,
            names,
            directory: MemberDirectory::default(),
            known,
            parts: Mutex::default(),
        }
    }

    /// The group with only those members that `may_use` accepts by their ids.
    pub(crate) fn with_members(self: &Arc<Self>, may_use: impl Fn(&str) -> bool) -> Arc<Self> {
        let used: Vec<bool> = self
            .members
            .iter()
            .map(|member| may_use(member.id().as_str()))
            .collect();
        if used.iter().all(|used| *used) {
            return Arc::clone(self);
        }
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        if parts.len() >= PARTS_MAX {
            parts.clear();
        }
        let part = parts.entry(used).or_insert_with_key(|used| {
            let members = self.members.iter().zip(used).filter(|(_, used)| **used);
            let members = members.map(|(member, _)| member.clone()).collect();
            let known = Arc::clone(&self.known);
            Arc::new(Self::new(self.id.clone(), members, self.names, known))
        });
        Arc::clone(part)
    }

    /// Its members in their order.
    #[must_use]
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Whether its members serve: ready if all that are known do, not ready if one does not. The others are served anyway.
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        let members = self.members.iter().filter_map(Member::upstream);
        let states: Vec<Readiness> = members.map(|server| server.readiness()).collect();
        if states.contains(&Readiness::NotReady) {
            Readiness::NotReady
        } else if states.contains(&Readiness::Unknown) {
            Readiness::Unknown
        } else {
            Readiness::Ready
        }
    }

    /// How the group names their tools and prompts.
    #[must_use]
    pub const fn names(&self) -> GroupNames {
        self.names
    }

    /// What is remembered of the members.
    pub(crate) const fn known(&self) -> &Arc<KnownMembers> {
        &self.known
    }

    /// Whether a member is a program, which is started when it is first needed.
    pub(crate) fn has_programs(&self) -> bool {
        self.upstreams().any(|server| server.is_program())
    }

    /// The upstream members.
    pub(crate) fn upstreams(&self) -> impl Iterator<Item = &Arc<Server>> {
        self.members.iter().filter_map(Member::upstream)
    }

    /// Whether it is this group of the same members.
    fn consists_of(&self, members: &[Member], names: GroupNames) -> bool {
        let mut pairs = self.members.iter().zip(members);
        self.names == names
            && self.members.len() == members.len()
            && pairs.all(|(one, other)| one.is_same(other))
    }

    /// The upstream member of this id.
    pub(crate) fn upstream(&self, id: &str) -> Option<&Arc<Server>> {
        self.upstreams().find(|server| server.id.as_str() == id)
    }

    /// The ids of the members in their order.
    pub(crate) fn ids(&self) -> Vec<&str> {
        self.members
            .iter()
            .map(|member| member.id().as_str())
            .collect()
    }

    /// The member that a prefixed name identifies, and the name without the prefix.
    pub(crate) fn split<'a>(&self, name: &'a str) -> Option<(&Member, &'a str)> {
        let ids = self.members.iter().map(|member| member.id().as_str());
        let (place, rest) = names::split(ids, name)?;
        Some((self.members.get(place)?, rest))
    }
}

/// All groups by id.
#[derive(Debug, Default)]
pub struct Groups {
    by_id: BTreeMap<Box<str>, Arc<Group>>,
    /// What is remembered of the members of all of them.
    known: Arc<KnownMembers>,
}

impl Groups {
    /// The configured groups, over servers of all other kinds. The settings guarantee that every member is configured;
    /// a disabled code server is left out and logged. A group that `previous` has with the same members stays what it is.
    ///
    /// # Errors
    /// A configured name is invalid in the store.
    pub fn new(
        settings: &[ServerSettings],
        servers: &Servers,
        code: Option<&CodeServers>,
        previous: Option<&Self>,
    ) -> Result<Self, NameError> {
        let mut by_id = BTreeMap::new();
        let known = previous.map_or_else(Arc::default, |previous| Arc::clone(&previous.known));
        for group in previous.iter().flat_map(|previous| previous.iter()) {
            let is_replaced = |member: &&Arc<Server>| {
                let present = servers.get(member.id.as_str());
                present.is_none_or(|present| !Arc::ptr_eq(present, member))
            };
            for member in group.upstreams().filter(is_replaced) {
                known.forget(&member.id);
            }
        }
        for configured in settings {
            let ServerKind::Group(group) = &configured.kind else {
                continue;
            };
            let mut members = Vec::new();
            for id in &group.members {
                let upstream = || servers.get(id.as_str()).cloned().map(Member::Upstream);
                let code = || code?.get(id.as_str()).cloned().map(Member::Code);
                match upstream().or_else(code) {
                    Some(member) => members.push(member),
                    None => {
                        tracing::warn!(group = %configured.id, server = %id, "member of a group is not served");
                    }
                }
            }
            let id = configured.id.as_str();
            let present = previous.and_then(|previous| previous.get(id));
            let present = present.filter(|present| present.consists_of(&members, group.names));
            let group = match present {
                Some(present) => Arc::clone(present),
                None => {
                    let id = ServerName::parse(id.as_bytes())?;
                    Arc::new(Group::new(id, members, group.names, Arc::clone(&known)))
                }
            };
            by_id.insert(id.into(), group);
        }
        Ok(Self { by_id, known })
    }

    /// The group of this id.
    #[must_use]
    pub fn get(&self, id: &str) -> Option<&Arc<Group>> {
        self.by_id.get(id)
    }

    /// Every group.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Group>> {
        self.by_id.values()
    }
}
