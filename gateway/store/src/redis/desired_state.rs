//! What operators want of the fleet, as one plain hash `<prefix>desired_state`, without expiry.
//!
//! Invariant: a change is made only if the version is the one that it was planned on: WATCH, MULTI and EXEC on a connection
//! of its own, because on the shared one they would mix with the commands of others.

use redis::{Cmd, Value};
use tokio::time::{Instant, timeout_at};

use super::command_connection::CommandConnection;
use super::failure::{self, invalid_reply};
use super::reply::{self, Problem, text};
use super::{RedisStore, Resend};
use crate::desired_state::{DesiredFields, DesiredWrite, VERSION_FIELD, parse_version};
use crate::error::{StoreError, UnavailableReason};

impl RedisStore {
    pub(crate) async fn desired_state_version(&self) -> Result<u64, StoreError> {
        let mut command = self.of_desired_state("HGET");
        command.arg(VERSION_FIELD);
        let value = self.send(&command, "HGET", Resend::Once).await?;
        version(value).map_err(invalid_reply("HGET"))
    }

    pub(crate) async fn desired_fields(&self) -> Result<DesiredFields, StoreError> {
        let command = self.of_desired_state("HGETALL");
        let value = self.send(&command, "HGETALL", Resend::Once).await?;
        fields(value).map_err(invalid_reply("HGETALL"))
    }

    /// Returns whether the stored version was the expected one. If not, nothing is written.
    pub(crate) async fn write_desired_fields(
        &self,
        write: &DesiredWrite,
    ) -> Result<bool, StoreError> {
        let connection = self
            .servers
            .dial_separate(&self.desired_state_key())
            .await?;
        let deadline = Instant::now() + self.servers.command_timeout();
        let send = async |command: &Cmd, name| ask(&connection, command, name, deadline).await;
        send(&self.of_desired_state("WATCH"), "WATCH").await?;
        let mut command = self.of_desired_state("HGET");
        command.arg(VERSION_FIELD);
        let stored = version(send(&command, "HGET").await?).map_err(invalid_reply("HGET"))?;
        if stored != write.expected {
            return Ok(false);
        }
        send(&redis::cmd("MULTI"), "MULTI").await?;
        for command in self.changes(write) {
            send(&command, "HSET").await?;
        }
        // Null if the hash was changed since WATCH.
        Ok(send(&redis::cmd("EXEC"), "EXEC").await? != Value::Nil)
    }

    /// The commands of a change.
    fn changes(&self, write: &DesiredWrite) -> Vec<Cmd> {
        let mut set = self.of_desired_state("HSET");
        let mut removed = self.of_desired_state("HDEL");
        let mut is_removing = false;
        for (field, value) in &write.fields {
            match value {
                Some(value) => {
                    set.arg(field).arg(value);
                }
                None => {
                    removed.arg(field);
                    is_removing = true;
                }
            }
        }
        std::iter::once(set)
            .chain(is_removing.then_some(removed))
            .collect()
    }

    fn of_desired_state(&self, command: &str) -> Cmd {
        let mut command = redis::cmd(command);
        command.arg(self.desired_state_key());
        command
    }

    fn desired_state_key(&self) -> String {
        format!("{}desired_state", self.prefix)
    }
}

/// Sends a command on a connection of its own. An error of the server is an error.
async fn ask(
    connection: &CommandConnection,
    command: &Cmd,
    name: &'static str,
    deadline: Instant,
) -> Result<Value, StoreError> {
    let reply = match timeout_at(deadline, connection.send(command)).await {
        Ok(Ok(reply)) => reply,
        Ok(Err(_)) => return Err(StoreError::Away(UnavailableReason::Dropped)),
        Err(_) => return Err(StoreError::Away(UnavailableReason::TimedOut)),
    };
    failure::accepted(reply, name)
}

fn version(reply: Value) -> Result<u64, Problem> {
    let version = reply::optional_text(reply)?;
    Ok(version.map_or(0, |text| parse_version(&text)))
}

fn fields(reply: Value) -> Result<DesiredFields, Problem> {
    let pairs = reply
        .into_map_iter()
        .map_err(|_| "it is not a map".to_owned())?;
    let own = |value: &Value| text(value).map(str::to_owned);
    let field = |(field, value)| {
        own(&field)
            .zip(own(&value))
            .ok_or_else(|| "a field is no text".to_owned())
    };
    pairs.map(field).collect()
}
