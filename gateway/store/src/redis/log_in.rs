//! Connects to one server, or sentinel, and logs in.
//!
//! Invariant: where a primary is needed, a connection is returned only if the server says that it is one.

use std::time::Duration;

use mooring_settings::{RedisAddress, RedisEndpoint, RespVersion};
use redis::{Cmd, Value};
use tokio::time::timeout;

use super::command_connection::CommandConnection;
use super::down_reason::{ANSWERED, DownReason, REFUSED, TLS_FAILED, down, refused, timed_out};
use super::reply::{Fields, text};

/// The server can be reached, but only its primary serves.
const REPLICA: &str = "it is a replica";

/// Connects, authenticates, and selects the protocol and the database, within a time.
pub(super) async fn log_in(
    server: &RedisEndpoint,
    at_most: Duration,
    needs_primary: bool,
) -> Result<CommandConnection, DownReason> {
    let opening = async {
        let connection = CommandConnection::open(server).await;
        let connection = connection.map_err(|error| down(&error))?;
        set_up(server, &connection, needs_primary).await?;
        Ok(connection)
    };
    let opened = timeout(at_most, opening).await;
    opened.unwrap_or_else(|_| Err(timed_out())).map_err(|down| match down {
        DownReason::Unreachable(problem)
            if matches!(server.address, RedisAddress::Tls(..))
                && problem != REFUSED
                && problem != REPLICA
                && !problem.starts_with(ANSWERED)
                && !problem.starts_with(TLS_FAILED) =>
        {
            DownReason::Unreachable(format!(
                "{problem}; no TLS was agreed: rediss:// needs a port that speaks TLS with a certificate that this \
                 system trusts, and redis:// is for a port without TLS"
            ))
        }
        down => down,
    })
}

async fn set_up(
    server: &RedisEndpoint,
    connection: &CommandConnection,
    needs_primary: bool,
) -> Result<(), DownReason> {
    if let Some(password) = &server.login.password {
        let mut command = redis::cmd("AUTH");
        command.arg(&server.login.user).arg(password);
        send(connection, &command).await?;
    }
    if needs_primary || server.protocol == RespVersion::Three {
        // Every user may send it, and the reply has the role.
        let mut command = redis::cmd("HELLO");
        command.arg((server.protocol == RespVersion::Three).then_some(3));
        let greeting = send(connection, &command).await?;
        if needs_primary && !is_of_primary(greeting) {
            return Err(DownReason::Unreachable(REPLICA.to_owned()));
        }
    }
    if server.database != 0 {
        let mut command = redis::cmd("SELECT");
        command.arg(server.database);
        send(connection, &command).await?;
    }
    Ok(())
}

/// Whether the reply to HELLO is that of a primary.
fn is_of_primary(greeting: Value) -> bool {
    let role = Fields::of(greeting)
        .ok()
        .and_then(|mut fields| fields.take("role"));
    role.as_ref().and_then(text) == Some("master")
}

/// The reply to a command while a connection is set up.
pub(super) async fn send(
    connection: &CommandConnection,
    command: &Cmd,
) -> Result<Value, DownReason> {
    match connection.send(command).await {
        Ok(Value::ServerError(error)) => Err(refused(&error)),
        Ok(value) => Ok(value),
        Err(error) => Err(down(&error)),
    }
}
