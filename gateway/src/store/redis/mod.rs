//! The Redis store: every transition is one command of the mooring module, carried out by the server.
//!
//! Nothing is decided here. [`link`] keeps the connection, [`command`] writes requests, [`reply`] reads answers by
//! field name, and [`failure`] turns error answers back into the rules' refusals by their code.

mod command;
mod failure;
mod link;
mod reply;
#[cfg(test)]
mod tests;

use std::time::Duration;

use mooring_session::names::{NameError, Problem, WorkerId};
use mooring_session::refusal::Refusal;
use mooring_session::time::Millis;
use mooring_session::workers::Beat;
use redis::{Cmd, Value};
use tokio::sync::watch;

pub(super) use self::command::Wire;
use self::link::Link;
pub(super) use self::link::{Down, LinkState, Resend};
use super::error::{OpenError, StoreError};
use super::key::{InitDigest, SessionKey};

/// A Redis with the module.
#[derive(Debug)]
pub(super) struct RedisStore {
    link: Link,
    prefix: Box<str>,
}

impl RedisStore {
    /// Makes the first connection and starts the task that keeps it. An unreachable server is no error here.
    ///
    /// # Errors
    /// The URL is refused, or the server was reached and refuses this client or has no module.
    pub(super) async fn open(
        url: &str,
        prefix: &str,
        command_timeout: Duration,
    ) -> Result<Self, OpenError> {
        Ok(Self {
            link: Link::open(url, command_timeout).await?,
            prefix: prefix.into(),
        })
    }

    /// Where the server is, without credentials.
    pub(super) fn address(&self) -> &str {
        self.link.address()
    }

    /// Whether there is a connection, and every change of it.
    pub(super) fn watch(&self) -> watch::Receiver<LinkState> {
        self.link.watch()
    }

    pub(super) async fn run<T: Wire>(
        &self,
        key: &SessionKey,
        request: &T,
    ) -> Result<T::Reply, StoreError> {
        if request.is_without_instances() {
            // The rules' own words, which the text of a server's answer cannot be turned back into.
            return Err(StoreError::Refused(Refusal::Argument(NameError {
                what: "INSTANCES",
                problem: Problem::Range(1, mooring_session::limits::INSTANCES_MAX as u64),
            })));
        }
        let mut command = Cmd::new();
        request.write(key, &mut command);
        let value = self.send(&command, T::COMMAND, T::RESEND).await?;
        request.read(value).map_err(|problem| StoreError::Reply {
            command: T::COMMAND,
            problem: problem.into(),
        })
    }

    pub(super) async fn beat(&self, beat: &Beat) -> Result<(), StoreError> {
        self.send(&command::beat(beat), "WORKER.BEAT", Resend::Once)
            .await
            .map(drop)
    }

    pub(super) async fn gone(&self, worker: &WorkerId) -> Result<bool, StoreError> {
        let name = "WORKER.GONE";
        let value = self
            .send(&command::gone(worker), name, Resend::Once)
            .await?;
        reply::was_alive(value).map_err(|problem| StoreError::Reply {
            command: name,
            problem: problem.into(),
        })
    }

    pub(super) async fn put_init(
        &self,
        digest: &InitDigest,
        json: &str,
        keep: Millis,
    ) -> Result<(), StoreError> {
        let mut command = redis::cmd("SET");
        command
            .arg(digest.key(&self.prefix))
            .arg(json)
            .arg("PX")
            .arg(keep.get());
        self.send(&command, "SET", Resend::Once).await.map(drop)
    }

    pub(super) async fn get_init(&self, digest: &InitDigest) -> Result<Option<String>, StoreError> {
        let mut command = redis::cmd("GET");
        command.arg(digest.key(&self.prefix));
        let value = self.send(&command, "GET", Resend::Once).await?;
        reply::optional_text(value).map_err(|problem| StoreError::Reply {
            command: "GET",
            problem: problem.into(),
        })
    }

    async fn send(
        &self,
        command: &Cmd,
        name: &'static str,
        resend: Resend,
    ) -> Result<Value, StoreError> {
        match self.link.send(command, resend).await? {
            Value::ServerError(error) => Err(failure::of_server(
                name,
                error.code(),
                error.details().unwrap_or(""),
            )),
            value => Ok(value),
        }
    }
}
