//! The Redis store: every transition is one command of the mooring module, carried out by the server.
//!
//! Nothing is decided here. [`dial`] makes connections, and [`link`] keeps the one that all commands share but the one
//! that blocks, for which [`events`] has its own. [`command`] writes requests over a record, [`reply`] reads answers by field
//! name, and [`failure`] turns error answers back into the rules' refusals by their code. [`sessions`],
//! [`fleet`], [`turns`] and [`rate`] hold the rest, both ways.

mod command;
mod dial;
mod events;
mod failure;
mod fleet;
mod link;
mod prefixes;
mod rate;
mod reply;
mod sessions;
#[cfg(test)]
mod tests;
mod turns;

use std::sync::Arc;
use std::time::Duration;

use mooring_session::names::{NameError, Problem};
use mooring_session::refusal::Refusal;
use mooring_session::time::Millis;
use redis::{Cmd, Value};
use tokio::sync::watch;

pub(super) use self::command::Wire;
use self::dial::Dialer;
use self::events::EventConnections;
use self::link::Link;
pub(super) use self::link::{DownReason, LinkState, Resend};
use super::error::{OpenError, StoreError};
use super::key::{Family, InitDigest, SessionKey};

/// A Redis with the module.
#[derive(Debug)]
pub(super) struct RedisStore {
    link: Link,
    events: EventConnections,
    prefix: Box<str>,
}

impl RedisStore {
    /// Makes the first connection and starts the task that keeps it. An unreachable server is no error here.
    ///
    /// # Errors
    /// The URL is refused, or the server was reached and refuses this client, or has no module that knows
    /// every command that this gateway sends, or one that does not index keys under `prefix`.
    pub(super) async fn open(
        url: &str,
        prefix: &str,
        command_timeout: Duration,
    ) -> Result<Self, OpenError> {
        let dialer = Arc::new(Dialer::new(url, command_timeout)?);
        let link = Link::open(Arc::clone(&dialer), Family::heads(prefix)).await?;
        Ok(Self {
            events: EventConnections::new(dialer, link.watch(), prefix),
            link,
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
        request.read(value).map_err(unreadable(T::COMMAND))
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
        reply::optional_text(value).map_err(unreadable("GET"))
    }

    pub(super) async fn delete_init(&self, digest: &InitDigest) -> Result<(), StoreError> {
        let mut command = redis::cmd("DEL");
        command.arg(digest.key(&self.prefix));
        self.send(&command, "DEL", Resend::Once).await.map(drop)
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

/// The error that a reply which does not read as it must comes to.
fn unreadable(command: &'static str) -> impl FnOnce(reply::Problem) -> StoreError {
    move |problem| StoreError::Reply {
        command,
        problem: problem.into(),
    }
}
