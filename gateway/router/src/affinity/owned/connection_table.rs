//! The connections that live in this worker, by the session and server whose binding names it as their owner.
//!
//! Invariant: a connection is found under the epoch of its binding only; whoever names another epoch is told to ask the
//! store again.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use mooring_session::names::ServerName;

use crate::affinity::Session;
use mooring_store::SessionKey;
use mooring_upstream::connection::{Activity, Connection};
use mooring_upstream::{SendError, Server};

/// Which session's connection to which server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionKey {
    /// The session.
    pub key: SessionKey,
    /// The server.
    pub server: ServerName,
}

impl ConnectionKey {
    /// The session's connection to this server.
    #[must_use]
    pub fn of(session: &Session, server: &Server) -> Self {
        Self {
            key: session.key.clone(),
            server: server.id.clone(),
        }
    }
}

/// A connection, and which binding it is of.
#[derive(Clone, Debug)]
pub(super) struct OwnedConnection {
    /// The fence of its binding.
    pub(super) epoch: u64,
    /// The connection.
    pub(super) connection: Connection,
}

/// The connections of this worker.
#[derive(Debug, Default)]
pub(super) struct ConnectionTable(Mutex<HashMap<ConnectionKey, OwnedConnection>>);

impl ConnectionTable {
    fn lock(&self) -> MutexGuard<'_, HashMap<ConnectionKey, OwnedConnection>> {
        // The map is whole after every statement, so a panic elsewhere leaves nothing half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection of this binding.
    ///
    /// # Errors
    /// [`SendError::Elsewhere`] where it is not here, [`SendError::Ended`] where it was.
    pub(super) fn get(&self, place: &ConnectionKey, epoch: u64) -> Result<Connection, SendError> {
        let held = self.lock().get(place).cloned();
        match held {
            Some(held) if held.epoch == epoch => match held.connection.end() {
                Some(end) => Err(SendError::Ended(end.to_string().into())),
                None => Ok(held.connection),
            },
            _ => Err(SendError::Elsewhere),
        }
    }

    /// Keeps a connection; one of an earlier epoch is closed. Where a later one is there already, this one is.
    pub(super) fn keep(&self, place: ConnectionKey, held: OwnedConnection) {
        let mut table = self.lock();
        let superseded = match table.get(&place) {
            Some(present) if present.epoch > held.epoch => Some(held),
            _ => table.insert(place, held),
        };
        drop(table);
        if let Some(superseded) = superseded {
            superseded.connection.close();
        }
    }

    /// Closes the connection of this binding, or of an earlier one of the same place.
    pub(super) fn close(&self, place: &ConnectionKey, epoch: u64) -> Option<Connection> {
        let mut table = self.lock();
        let is_due = table.get(place).is_some_and(|held| held.epoch <= epoch);
        let held = is_due.then(|| table.remove(place)).flatten();
        drop(table);
        let connection = held?.connection;
        connection.close();
        Some(connection)
    }

    /// How many have a server.
    pub(super) fn len(&self) -> usize {
        let has_server = |held: &&OwnedConnection| held.connection.activity() != Activity::Stopped;
        self.lock().values().filter(has_server).count()
    }

    /// Everything that is held.
    pub(super) fn all(&self) -> Vec<(ConnectionKey, OwnedConnection)> {
        self.lock()
            .iter()
            .map(|(place, held)| (place.clone(), held.clone()))
            .collect()
    }
}
