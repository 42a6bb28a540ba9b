//! Servers that operators add, change and remove while gateways run. They are kept in the store, among what operators want of
//! the fleet, and every gateway applies them by a reload.
//!
//! Invariant: what is kept was checked by a gateway together with its settings. One that has other settings, with which they
//! do not fit, logs why, and serves what it served before.

mod definition;

use std::sync::Arc;

use mooring_session::names::ServerName;
use mooring_store::{
    AddedServer, DesiredChange, DesiredState, DesiredStateError, OperatorNote, Store,
};
use serde_json::Value;

pub(crate) use self::definition::ServerDefinition;
use crate::reload::{ReloadError, ReloadHandle, ReloadReport};
use mooring_admin::{Operator, OperatorIdentity};

/// Why a server was not added, changed or removed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServerChangeError {
    /// The definition cannot be used; every problem.
    #[error("nothing was changed: {}", .0.join("\n"))]
    Invalid(Vec<String>),
    /// A server has this id.
    #[error("a server {0} is served already; change that one, or choose another id")]
    Exists(ServerName),
    /// No server of this id was added.
    #[error(
        "no server of the id {0:?} was added: those of the settings are changed there, and reloaded"
    )]
    NotAdded(String),
    /// The store has not kept the change.
    #[error(transparent)]
    Store(#[from] DesiredStateError),
    /// The change is kept, and this gateway could not apply it.
    #[error(transparent)]
    Reload(#[from] ReloadError),
}

/// Changes the servers that operators have added.
pub(crate) struct AddedServers<'a> {
    pub(crate) store: &'a Store,
    pub(crate) reloads: &'a ReloadHandle,
    /// Who asks.
    pub(crate) operator: &'a str,
    /// Whether changes are only checked.
    pub(crate) is_preview: bool,
}

impl<'a> AddedServers<'a> {
    /// Those of this operator's fleet.
    pub(crate) fn of(
        operator: &'a Operator,
        identity: &'a OperatorIdentity,
        reloads: &'a ReloadHandle,
    ) -> Self {
        Self {
            store: operator.store(),
            reloads,
            operator: identity.identity.principal.as_str(),
            is_preview: false,
        }
    }

    /// The definitions of all that were added.
    pub(crate) async fn definitions(&self) -> Result<Vec<Value>, ServerChangeError> {
        let state = self.read_state().await?;
        let added = state.servers.values();
        Ok(added.map(|added| added.definition.clone()).collect())
    }

    /// Adds a server. `is_served` says whether this gateway serves one of that id.
    pub(crate) async fn add(
        &self,
        text: Value,
        is_served: impl FnOnce(&ServerName) -> bool,
    ) -> Result<(ServerDefinition, ReloadReport), ServerChangeError> {
        let definition = ServerDefinition::parse(text).map_err(ServerChangeError::Invalid)?;
        let state = self.read_state().await?;
        if is_served(&definition.id) || state.servers.contains_key(&definition.id) {
            return Err(ServerChangeError::Exists(definition.id));
        }
        self.put(&state, definition).await
    }

    /// Changes fields of a server that was added.
    pub(crate) async fn change(
        &self,
        id: &str,
        patch: Value,
    ) -> Result<(ServerDefinition, ReloadReport), ServerChangeError> {
        let state = self.read_state().await?;
        let (_, added) = find(&state, id)?;
        let present = ServerDefinition::parse(added.definition.clone());
        let present = present.map_err(ServerChangeError::Invalid)?;
        let present = ServerDefinition {
            note: added.note.note.to_string(),
            ..present
        };
        let definition = present.patched(patch).map_err(ServerChangeError::Invalid)?;
        self.put(&state, definition).await
    }

    /// Removes a server that was added. Its sessions end.
    pub(crate) async fn remove(&self, id: &str) -> Result<ReloadReport, ServerChangeError> {
        let state = self.read_state().await?;
        let (id, _) = find(&state, id)?;
        let change = DesiredChange::RemoveServer(id.clone());
        self.make(&state, id, None, change).await
    }

    /// What the store has now. A change is made to exactly that, so that operators do not overwrite each other's.
    async fn read_state(&self) -> Result<Arc<DesiredState>, ServerChangeError> {
        let read = self.store.refresh_desired_state().await;
        read.map_err(DesiredStateError::Store)?;
        Ok(self.store.desired_state())
    }

    /// Adds the definition, or puts it in the place of the one of its id.
    async fn put(
        &self,
        state: &DesiredState,
        definition: ServerDefinition,
    ) -> Result<(ServerDefinition, ReloadReport), ServerChangeError> {
        let fields = Value::Object(definition.fields.clone());
        let added = AddedServer {
            definition: fields.clone(),
            note: OperatorNote::now(self.operator, &definition.note),
        };
        let change = DesiredChange::PutServer(definition.id.clone(), added);
        let made = self.make(state, &definition.id, Some(fields), change);
        let report = made.await?;
        Ok((definition, report))
    }

    /// Checks a change of one server together with the settings and the other servers, keeps it, and applies it here. The
    /// report is that of the check: the change may be applied before this asks for it.
    async fn make(
        &self,
        state: &DesiredState,
        id: &ServerName,
        fields: Option<Value>,
        change: DesiredChange,
    ) -> Result<ReloadReport, ServerChangeError> {
        let others = state.servers.iter().filter(|(other, _)| *other != id);
        let others = others.map(|(_, added)| added.definition.clone());
        let checked = self.reloads.check(others.chain(fields).collect()).await;
        let report = checked.map_err(|error| match error {
            ReloadError::Refused(problems) => ServerChangeError::Invalid(problems),
            error @ ReloadError::Stopping => ServerChangeError::Reload(error),
        })?;
        if self.is_preview {
            return Ok(report);
        }
        let version = Some(state.version);
        self.store.change_desired_state(version, &[change]).await?;
        self.reloads.reload().await?;
        Ok(report)
    }
}

fn find<'a>(
    state: &'a DesiredState,
    id: &str,
) -> Result<(&'a ServerName, &'a AddedServer), ServerChangeError> {
    let mut servers = state.servers.iter();
    let found = servers.find(|(name, _)| name.as_str() == id);
    found.ok_or_else(|| ServerChangeError::NotAdded(id.to_owned()))
}
