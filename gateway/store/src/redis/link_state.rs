//! The state of a link: its connection, or why there is none.

use std::sync::Arc;

use mooring_settings::RedisEndpoint;
use tokio::time::Instant;

use super::command_connection::CommandConnection;
use super::dial::ServerConnection;
use super::down_reason::DownReason;

/// Whether a command is sent again if the connection is lost before its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resend {
    /// Once, within the command's timeout.
    Once,
    /// Never: a repetition is refused as if the first had failed, or changes more.
    Never,
}

/// Whether a command is for a slot that the server is importing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotState {
    /// It serves the slot, or there are no slots.
    Served,
    /// Another node has said so of this key.
    Importing,
}

/// The state of the connection.
#[derive(Clone, Debug)]
pub(crate) enum LinkState {
    /// Open, and the module was checked.
    Up(Connection),
    /// Just lost; the first attempt to reconnect is in progress.
    Reconnecting,
    /// The last attempt to connect failed.
    Down(DownReason),
}

impl LinkState {
    /// Whether the connection of this number is open.
    pub(super) fn is_up(&self, number: u64) -> bool {
        matches!(self, Self::Up(connection) if connection.number == number)
    }
}

/// An open connection, with a number that distinguishes it from earlier ones.
#[derive(Clone)]
pub(crate) struct Connection {
    pub(super) connection: CommandConnection,
    /// The server that it leads to: every further connection of this number is to the same one.
    pub(super) server: Arc<RedisEndpoint>,
    pub(super) number: u64,
    pub(super) opened_at: Instant,
}

impl Connection {
    pub(super) fn new(opened: ServerConnection, number: u64) -> Self {
        let ServerConnection { connection, server } = opened;
        Self {
            connection,
            server,
            number,
            opened_at: Instant::now(),
        }
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Connection({})", self.number)
    }
}
