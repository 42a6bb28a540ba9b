//! The connections that this gateway owns, by session and server.
//!
//! Invariant: a connection is found only under the epoch of its binding; for any other epoch the caller has to ask the
//! store again.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use mooring_session::names::ServerName;

use crate::affinity::Session;
use mooring_store::SessionKey;
use mooring_upstream::connection::{Activity, Connection};
use mooring_upstream::{SendError, Server};

/// The key of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionKey {
    /// The session.
    pub key: SessionKey,
    /// The server.
    pub server: ServerName,
}

impl ConnectionKey {
    /// The key of the session's connection to this server.
    #[must_use]
    pub fn of(session: &Session, server: &Server) -> Self {
        Self {
            key: session.key.clone(),
            server: server.id.clone(),
        }
    }
}

/// A connection and the epoch of its binding.
#[derive(Clone, Debug)]
pub(super) struct OwnedConnection {
    /// The epoch of its binding.
    pub(super) epoch: u64,
    /// The connection.
    pub(super) connection: Connection,
}

/// The connections of this gateway.
#[derive(Debug, Default)]
pub(super) struct ConnectionTable(Mutex<HashMap<ConnectionKey, OwnedConnection>>);

impl ConnectionTable {
    fn lock(&self) -> MutexGuard<'_, HashMap<ConnectionKey, OwnedConnection>> {
        // The map is consistent after every statement, so a poisoned lock is usable.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection of this binding.
    ///
    /// # Errors
    /// [`SendError::Elsewhere`] if it is not here, [`SendError::Ended`] if it has ended.
    pub(super) fn get(
        &self,
        connection_key: &ConnectionKey,
        epoch: u64,
    ) -> Result<Connection, SendError> {
        let held = self.lock().get(connection_key).cloned();
        match held {
            Some(held) if held.epoch == epoch => match held.connection.end() {
                Some(end) => Err(SendError::Ended(end.to_string().into())),
                None => Ok(held.connection),
            },
            _ => Err(SendError::Elsewhere),
        }
    }

    /// Adds a connection and closes an earlier epoch's. If a later epoch's exists, the new one is closed instead.
    pub(super) fn keep(&self, connection_key: ConnectionKey, held: OwnedConnection) {
        let mut table = self.lock();
        let superseded = match table.get(&connection_key) {
            Some(present) if present.epoch > held.epoch => Some(held),
            _ => table.insert(connection_key, held),
        };
        drop(table);
        if let Some(superseded) = superseded {
            superseded.connection.close();
        }
    }

    /// Closes the connection of this binding, or of an earlier epoch.
    pub(super) fn close(&self, connection_key: &ConnectionKey, epoch: u64) -> Option<Connection> {
        let mut table = self.lock();
        let is_due = table
            .get(connection_key)
            .is_some_and(|held| held.epoch <= epoch);
        let held = is_due.then(|| table.remove(connection_key)).flatten();
        drop(table);
        let connection = held?.connection;
        connection.close();
        Some(connection)
    }

    /// The number of connections whose server is running.
    pub(super) fn len(&self) -> usize {
        let has_server = |held: &&OwnedConnection| held.connection.activity() != Activity::Stopped;
        self.lock().values().filter(has_server).count()
    }

    /// All connections.
    pub(super) fn all(&self) -> Vec<(ConnectionKey, OwnedConnection)> {
        self.lock()
            .iter()
            .map(|(connection_key, held)| (connection_key.clone(), held.clone()))
            .collect()
    }
}
