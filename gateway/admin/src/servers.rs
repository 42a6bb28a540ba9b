//! The servers of this gateway's settings: their kind and health, their instances, and the sessions on them.

use schemars::JsonSchema;
use serde::Serialize;

use super::note_view::NoteView;
use super::operator::{Operator, OperatorIdentity};
use super::operator_error::OperatorError;
use super::tally::Tally;
use super::words::{Health, ServerKindName};
use mooring_pipeline::{RequestServer as _, ServerTarget};
use mooring_session::rules::Ownership;
use mooring_settings::Right;
use mooring_store::{DesiredState, ParkedPart, rfc3339};
use mooring_upstream::{Contact, Instance, Server};

/// The servers of this gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ServerList {
    /// By id.
    pub servers: Vec<ServerView>,
    /// When the sessions were counted (RFC 3339).
    pub counted_at: String,
    /// Whether all of them were.
    pub complete: bool,
}

/// A server in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ServerView {
    /// Its id.
    pub id: String,
    /// What it is.
    pub kind: ServerKindName,
    /// Its health, by this gateway's last contacts.
    pub health: Health,
    /// Whether sessions that begin now are kept: `on`, `off`, or none for a kind without upstream sessions.
    pub affinity: Option<String>,
    /// How many instances it has; 0 for a kind without instances.
    pub instances: u64,
    /// The bindings of active sessions to it.
    pub sessions: u64,
    /// Why it gets nothing new; none if it is not parked as a whole.
    pub parked: Option<NoteView>,
}

/// A server with its instances.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ServerDetail {
    /// As in a list.
    #[serde(flatten)]
    pub summary: ServerView,
    /// Its instances.
    pub instance_list: Vec<InstanceView>,
    /// The ids of a group's members.
    pub members: Vec<String>,
    /// When the sessions were counted (RFC 3339).
    pub counted_at: String,
    /// Whether all of them were.
    pub complete: bool,
}

/// One instance of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct InstanceView {
    /// Its URL; `stdio` for a program that gateways start.
    pub instance: String,
    /// Its health, by this gateway's last contact.
    pub health: Health,
    /// Whether new sessions are bound elsewhere because it cannot be reached.
    pub is_unreached: bool,
    /// This gateway's last contact with it.
    pub last_contact: Option<ContactView>,
    /// The bindings of active sessions to it.
    pub sessions: u64,
    /// Why it gets nothing new; none if it is not parked by itself.
    pub parked: Option<NoteView>,
}

/// A contact with an instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ContactView {
    /// When (RFC 3339).
    pub at: String,
    /// The outcome, as in metrics: `ok`, or the kind of failure.
    pub outcome: String,
    /// Why it failed.
    pub cause: Option<String>,
}

impl ContactView {
    fn of(contact: &Contact) -> Self {
        Self {
            at: rfc3339(contact.at_ms),
            outcome: <&'static str>::from(contact.outcome()).to_owned(),
            cause: (contact.failure.as_ref()).map(|cause| cause.text.to_string()),
        }
    }
}

impl InstanceView {
    fn of(server: &Server, instance: &Instance, tally: &Tally, state: &DesiredState) -> Self {
        let part = ParkedPart {
            server: server.id.clone(),
            instance: Some(instance.name.clone()),
        };
        let contact = instance.contact.last();
        let name = instance.name.as_str();
        Self {
            instance: name.to_owned(),
            health: match &contact {
                None => Health::Unknown,
                Some(contact) if contact.failure.is_none() => Health::Ok,
                Some(_) => Health::Unavailable,
            },
            is_unreached: instance.reach.is_unreached(),
            last_contact: contact.as_ref().map(ContactView::of),
            sessions: tally.of_instance(server.id.as_str(), name),
            parked: state.parked.get(&part).map(NoteView::of),
        }
    }
}

impl Operator {
    /// The servers. Needs `fleet.read`.
    ///
    /// # Errors
    /// Forbidden, or the store's.
    pub async fn servers(&self, operator: &OperatorIdentity) -> Result<ServerList, OperatorError> {
        self.require(operator, Right::FleetRead)?;
        let (tally, state) = (self.tally().await?, self.store().desired_state());
        let code = self.code_health().await;
        let targets = self.directory.targets().into_iter();
        let servers = targets.map(|target| summary(&target, code, &tally, &state));
        Ok(ServerList {
            servers: servers.collect(),
            counted_at: rfc3339(tally.counted_at_ms),
            complete: tally.is_complete,
        })
    }

    /// One server. Needs `fleet.read`.
    ///
    /// # Errors
    /// Forbidden, `ServerNotFound`, or the store's.
    pub async fn server(
        &self,
        operator: &OperatorIdentity,
        id: &str,
    ) -> Result<ServerDetail, OperatorError> {
        self.require(operator, Right::FleetRead)?;
        let target = self.target(id)?;
        let (tally, state) = (self.tally().await?, self.store().desired_state());
        let instances = match &target {
            ServerTarget::Upstream(server) => server
                .instances
                .iter()
                .map(|instance| InstanceView::of(server, instance, &tally, &state))
                .collect(),
            _ => Vec::new(),
        };
        let members = target.members().into_iter().map(str::to_owned);
        Ok(ServerDetail {
            summary: summary(&target, self.code_health().await, &tally, &state),
            instance_list: instances,
            members: members.collect(),
            counted_at: rfc3339(tally.counted_at_ms),
            complete: tally.is_complete,
        })
    }

    /// The server of this id, of whatever kind.
    pub(crate) fn target(&self, id: &str) -> Result<ServerTarget, OperatorError> {
        let targets = self.directory.targets().into_iter();
        let mut named = targets.filter(|target| target.id().as_str() == id);
        named.next().ok_or(OperatorError::ServerNotFound)
    }

    async fn code_health(&self) -> Health {
        match &self.directory.code {
            Some(code) if code.state().await.is_ready() => Health::Ok,
            Some(_) => Health::Unavailable,
            None => Health::Unknown,
        }
    }
}

fn kind(target: &ServerTarget) -> ServerKindName {
    match target {
        ServerTarget::Upstream(server) if server.is_program() => ServerKindName::Stdio,
        ServerTarget::Upstream(server) => match server.ownership {
            Ownership::Owned => ServerKindName::Sse,
            Ownership::Shared => ServerKindName::Http,
        },
        ServerTarget::Code(_) => ServerKindName::Code,
        ServerTarget::Agent(_) => ServerKindName::Agent,
        ServerTarget::Group(_) => ServerKindName::Group,
        ServerTarget::Admin(_) => ServerKindName::Admin,
    }
}

fn summary(target: &ServerTarget, code: Health, tally: &Tally, state: &DesiredState) -> ServerView {
    let id = target.id().as_str();
    let whole = ParkedPart {
        server: target.id().clone(),
        instance: None,
    };
    let (health, affinity, instances) = match target {
        ServerTarget::Upstream(server) => {
            let affinity = match server.keeps_new_sessions() {
                true => "on",
                false => "off",
            };
            (
                server.health().0.into(),
                Some(affinity),
                server.instances.len(),
            )
        }
        ServerTarget::Code(_) => (code, None, 0),
        ServerTarget::Agent(_) | ServerTarget::Group(_) => (Health::Unknown, None, 0),
        ServerTarget::Admin(_) => (Health::Ok, None, 0),
    };
    ServerView {
        id: id.to_owned(),
        kind: kind(target),
        health,
        affinity: affinity.map(str::to_owned),
        instances: u64::try_from(instances).unwrap_or(u64::MAX),
        sessions: tally.of_server(id),
        parked: state.parked.get(&whole).map(NoteView::of),
    }
}
