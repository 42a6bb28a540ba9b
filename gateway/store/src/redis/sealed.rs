//! Sealed values as plain strings of Redis, `<prefix>sealed:<name>`, without expiry.

use futures_util::future::try_join_all;
use redis::{Cmd, Value};

use super::failure::invalid_reply;
use super::reply::Problem;
use super::{RedisStore, Resend};
use crate::error::StoreError;

impl RedisStore {
    pub(crate) async fn get_sealed(
        &self,
        names: &[String],
    ) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        if let Some(scripted) = &self.scripted {
            let keys = names.iter().map(|name| self.sealed_key(name));
            return scripted.get_values(keys).await;
        }
        let got = self.groups(names).map(async |names| {
            let command = self.of_sealed("MGET", names);
            let value = self.send(&command, "MGET", Resend::Once).await?;
            values(value).map_err(invalid_reply("MGET"))
        });
        Ok(try_join_all(got).await?.concat())
    }

    pub(crate) async fn put_sealed(&self, name: &str, value: &[u8]) -> Result<(), StoreError> {
        let mut command = self.of_sealed("SET", std::slice::from_ref(&name));
        command.arg(value);
        // After a lost reply, a repetition could undo what came in between.
        self.send(&command, "SET", Resend::Never).await.map(drop)
    }

    pub(crate) async fn delete_sealed(&self, names: &[String]) -> Result<bool, StoreError> {
        let deleted = self.groups(names).map(async |names| {
            let command = self.of_sealed("DEL", names);
            self.send(&command, "DEL", Resend::Never).await
        });
        let deleted = try_join_all(deleted).await?;
        Ok(deleted.iter().any(|count| *count != Value::Int(0)))
    }

    /// The names that one command may have: each alone in a cluster, where their keys are in different slots.
    fn groups<'n>(&self, names: &'n [String]) -> impl Iterator<Item = &'n [String]> {
        let most = match self.servers.cluster() {
            Some(_) => 1,
            None => names.len().max(1),
        };
        names.chunks(most)
    }

    fn of_sealed(&self, command: &str, names: &[impl AsRef<str>]) -> Cmd {
        let mut command = redis::cmd(command);
        for name in names {
            command.arg(self.sealed_key(name));
        }
        command
    }

    fn sealed_key(&self, name: &impl AsRef<str>) -> String {
        format!("{}sealed:{}", self.prefix, name.as_ref())
    }
}

fn values(reply: Value) -> Result<Vec<Option<Vec<u8>>>, Problem> {
    let values = reply.into_sequence();
    let values = values.map_err(|_| "it is no list".to_owned())?;
    let value = |value| match value {
        Value::Nil => Ok(None),
        Value::BulkString(bytes) => Ok(Some(bytes)),
        _ => Err("a value is no string".to_owned()),
    };
    values.into_iter().map(value).collect()
}
